// Numbers, durations and names as text.

export { count, formatNumber, formatShare, formatShort, formatTime, NO_ENGINE, shorten } from "../../report/src/format";

/** A duration in a unit that fits: "12 ms", "3.4 s", "5 min 12 s", "2 h 5 min". */
export function formatSeconds(seconds: number): string {
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
