// Numbers, shares and names as text.

/** The text for the engine of runs that name none. */
export const NO_ENGINE = "no engine";

const integers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const significant = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });

/** A number with thousands separators; a number with a fraction has six significant digits. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return integers.format(value);
  if (Math.abs(value) < 1e-4) return value.toExponential(3);
  return significant.format(value);
}

/** A number for an axis: 12,000 is 12K. */
export function formatShort(value: number): string {
  return Math.abs(value) < 10_000 ? formatNumber(value) : short.format(value);
}

/** A share from 0 to 1 in percent, with enough digits to differ from 0 and 100 %. */
export function formatShare(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const percent = value * 100;
  const distance = Math.min(Math.abs(percent), Math.abs(100 - percent));
  const digits = distance === 0 ? 0 : distance < 0.1 ? 3 : distance < 1 ? 2 : 1;
  return `${percent.toFixed(digits)} %`;
}

/** A share for an axis. */
export function formatPercent(value: number): string {
  return `${formatNumber(Number((value * 100).toPrecision(6)))} %`;
}

/** A word with its count: "1 run", "12,000 runs". */
export function count(value: number, noun: string, plural = `${noun}s`): string {
  return `${formatNumber(value)} ${value === 1 ? noun : plural}`;
}

export function formatTime(value: string): string {
  return value.replace("T", " ").replace(/(\.\d+)?Z$/, " UTC");
}

/** A long name with an ellipsis in its middle. */
export function shorten(name: string, length: number): string {
  const letters = [...name];
  if (letters.length <= length) return name;
  const head = Math.ceil((length - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (length - 1 - head)).join("")}`;
}
