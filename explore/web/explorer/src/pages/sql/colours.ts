// The colours of a chart and their legend.

import type * as Plot from "@observablehq/plot";
import { el } from "../../dom";
import { count, formatNumber } from "../../format";
import type { ColumnInfo } from "./columns";
import type { Datum } from "./marks";

const NUM_COLOURS = 7;
const MAX_ENTRIES = 30;

/** The phases of a game, in their order. */
const PHASES = ["early", "mid", "late"];

/**
 * Compares two values of the column for colours: numbers, phases in the order of a game, other texts by their letters.
 * So each bar of each result stacks the same values in the same order.
 */
export function compareColours(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [first, second] = [PHASES.indexOf(String(a)), PHASES.indexOf(String(b))];
  if (first >= 0 && second >= 0) return first - second;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** The scale of the colours and its legend. */
export function colourScale(
  data: Datum[],
  colour: ColumnInfo | null,
  /** Whether the colours stand for tiles. */
  hasTiles: boolean,
): { color: Plot.ScaleOptions | undefined; legend: HTMLElement[] } {
  if (colour === null) return { color: undefined, legend: [] };
  const values = [...new Set(data.map((datum) => datum.colour))];
  if (typeof values[0] === "number" && values.length > NUM_COLOURS) {
    const numbers = (values as number[]).filter((value) => !Number.isNaN(value));
    const domain = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
    const text = `${colour.name}: ${formatNumber(domain[0] ?? 0)} (violet) to ${formatNumber(domain[1] ?? 0)} (green)`;
    const type = hasTiles ? "log" : "linear";
    // The ends of the scheme are too dark and too light for the page.
    const color: Plot.ScaleOptions = { type, scheme: "viridis", domain, range: [0.1, 0.8] };
    return { color, legend: [el("span", { class: "hint" }, text)] };
  }
  values.sort(compareColours);
  const range = values.map((_, index) => `var(--series-${index % NUM_COLOURS})`);
  const legend = values.slice(0, MAX_ENTRIES).map((value, index) => {
    const sample = el("span", { class: "sample" });
    sample.style.background = range[index] ?? "";
    return el("span", { class: "entry" }, sample, el("bdi", {}, String(value)));
  });
  if (values.length > NUM_COLOURS) {
    legend.push(el("span", { class: "hint" }, `Colours repeat: ${count(values.length, "value")}.`));
  }
  return { color: { type: "ordinal", domain: values, range }, legend };
}
