// The engines that charts compare, each with a colour, a dash pattern and a symbol.

import type { Report, Result, Row } from "./data";
import { number, rowsOf, text } from "./data";
import { svg } from "./dom";

export interface Series {
  /** The engine; null = runs without an engine, or all runs. */
  key: string | null;
  label: string;
  /** The position in the order of charts. */
  index: number;
  color: string;
  dash: string;
  symbol: (typeof SYMBOLS)[number];
  /** An SQL condition over `runs`; null = all runs. */
  condition: string | null;
}

/** The number of engines that charts show at first. */
const SHOWN = 8;
const COLORS = 7;
const DASHES = ["none", "7 3", "2 2.5", "10 3 2 3", "4 2 1 2"];
const SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "cross", "wye"] as const;

/** Queries whose rows always name an engine. Other queries do so if `by_engine` is true. */
const ALWAYS_BY_ENGINE = new Set([
  "archive_summary",
  "blunders",
  "engine_agreement",
  "engine_leaderboard",
  "first_reach_sample",
  "hard_moves",
  "phase_mix",
  "policy_agreement",
  "run_lengths",
]);

const ALL_RUNS: Series = {
  key: null,
  label: "all runs",
  index: 0,
  color: "var(--series-0)",
  dash: "none",
  symbol: "circle",
  condition: null,
};

/** Returns the colour, the dash pattern and the symbol of the series at a position. */
export function style(index: number): Pick<Series, "index" | "color" | "dash" | "symbol"> {
  return {
    index,
    color: `var(--series-${index % COLORS})`,
    dash: DASHES[index % DASHES.length] ?? "none",
    symbol: SYMBOLS[index % SYMBOLS.length] ?? "circle",
  };
}

/** Whether the rows of a result are groups by engine. */
export function isByEngine(result: Result): boolean {
  return ALWAYS_BY_ENGINE.has(result.query) || result.parameters["by_engine"] === true;
}

/** The engines of the report and those that charts show. */
export class SeriesList {
  readonly all: readonly Series[];
  readonly #shown: Set<Series>;
  readonly #byKey = new Map<string | null, Series>();
  readonly #listeners: (() => void)[] = [];

  constructor(report: Report) {
    const runs = countRuns(report);
    const by = report.by ?? "engine";
    const keys = [...runs.keys()].sort((a, b) => (runs.get(b) ?? 0) - (runs.get(a) ?? 0) || compare(a, b));
    this.all = keys.map((key, index) => ({
      ...style(index),
      key,
      label: key === null ? `no ${by}` : key === "" ? "(empty name)" : key,
      // The column `engine` of the results has the groups of any kind.
      condition: equals(by === "ingest" ? "CAST(ingested_at AS VARCHAR)" : by, key),
    }));
    for (const series of this.all) this.#byKey.set(series.key, series);
    this.#shown = new Set(this.all.slice(0, SHOWN));
  }

  get shown(): Series[] {
    return this.all.filter((series) => this.#shown.has(series));
  }

  isShown(series: Series): boolean {
    return this.#shown.has(series);
  }

  show(series: Series, isShown: boolean): void {
    if (isShown) this.#shown.add(series);
    else this.#shown.delete(series);
    for (const listener of this.#listeners) listener();
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Returns the series of an engine's name. */
  named(name: string | null): Series | undefined {
    return this.#byKey.get(name);
  }

  /** Returns the rows of each shown engine, or all rows as one series if the result is not by engine. */
  split(result: Result): [Series, Row[]][] {
    const rows = rowsOf(result);
    if (!isByEngine(result)) return rows.length === 0 ? [] : [[ALL_RUNS, rows]];
    const bySeries = new Map<Series, Row[]>();
    for (const row of rows) {
      const series = this.#byKey.get(text(row, "engine"));
      if (series === undefined || !this.#shown.has(series)) continue;
      const group = bySeries.get(series);
      if (group === undefined) bySeries.set(series, [row]);
      else group.push(row);
    }
    return [...bySeries].sort(([a], [b]) => a.index - b.index);
  }
}

/** The engines of all results that are by engine, with the largest number of runs that a row states. */
function countRuns(report: Report): Map<string | null, number> {
  const runs = new Map<string | null, number>();
  for (const result of Object.values(report.results)) {
    if (result.error !== null || !isByEngine(result) || !result.columns.includes("engine")) continue;
    for (const row of rowsOf(result)) {
      const engine = text(row, "engine");
      const known = number(row, "num_runs");
      runs.set(engine, Math.max(runs.get(engine) ?? 0, Number.isNaN(known) ? 0 : known));
    }
  }
  return runs;
}

function compare(a: string | null, b: string | null): number {
  if (a === null || b === null) return (a === null ? 1 : 0) - (b === null ? 1 : 0);
  return a < b ? -1 : a > b ? 1 : 0;
}

/** An SQL condition for a column and a value. */
export function equals(column: string, value: string | null): string {
  return value === null ? `${column} IS NULL` : `${column} = '${value.replaceAll("'", "''")}'`;
}

const SHAPES: Record<Series["symbol"], string> = {
  circle: "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
  square: "M-3.6-3.6H3.6V3.6H-3.6Z",
  triangle: "M0-4.6L4.4 3.4H-4.4Z",
  diamond: "M0-5L3.6 0L0 5L-3.6 0Z",
  star: "M0-5L1.3-1.6L4.8-1.5L2 .7L3 4.1L0 2.1L-3 4.1L-2 .7L-4.8-1.5L-1.3-1.6Z",
  cross: "M-1.5-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
  wye: "M-1.5 4.8V.9L-4.9-1.1L-3.4-3.7L0-1.7L3.4-3.7L4.9-1.1L1.5.9V4.8Z",
};

/** A sample of a series' line and symbol, for legends. */
export function swatch(series: Series): SVGElement {
  return svg(
    "svg",
    { class: "swatch", width: 30, height: 12, viewBox: "-15 -6 30 12", "aria-hidden": "true" },
    svg("path", { d: "M-15 0H15", stroke: series.color, "stroke-width": 2, "stroke-dasharray": series.dash }),
    svg("path", { d: SHAPES[series.symbol], fill: series.color }),
  );
}
