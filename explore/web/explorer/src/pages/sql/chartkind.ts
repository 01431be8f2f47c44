// The choice of a chart that fits a result.

import type { QueryResult, Value } from "../../api/types";
import type { ColumnInfo } from "./columns";
import { isKey, isNumeric } from "./columns";

export const CHART_KINDS = ["bar", "line", "dot", "histogram"] as const;
export type ChartKind = (typeof CHART_KINDS)[number];

export interface ChartChoice {
  kind: ChartKind;
  /** Indices of columns; null = none. */
  x: number;
  y: number | null;
  colour: number | null;
}

/** The largest number of series with distinct colours. */
const MAX_COLOURS = 7;

/** The columns that a chart can have on its axes. */
export function isPlottable({ kind }: ColumnInfo): boolean {
  return kind !== "board" && kind !== "other";
}

/** A chart that fits a result, by the types of its columns and the order of its rows; null if none does. */
export function defaultChart(columns: ColumnInfo[], { rows }: QueryResult): ChartChoice | null {
  const plottable = columns.filter(isPlottable);
  const numbers = plottable.filter(isNumeric);
  const measures = numbers.filter((column) => !isKey(column));
  const labels = plottable.filter((column) => column.kind === "text" || column.kind === "bool");
  if (plottable.length === 0 || rows.length === 0) return null;
  const distinct = (column: ColumnInfo): number => new Set(rows.map((row) => row[column.index] ?? null)).size;
  const isSeries = (column: ColumnInfo): boolean => distinct(column) > 1 && distinct(column) < rows.length / 2;
  const colour =
    labels.find((column) => isSeries(column) && distinct(column) <= MAX_COLOURS) ??
    numbers.find((column) => isTile(column, rows) && isSeries(column)) ??
    numbers.find((column) => column.name === "run_id" && isSeries(column) && distinct(column) <= MAX_COLOURS) ??
    null;
  const others = (used: ColumnInfo): ColumnInfo[] => measures.filter((column) => column !== used && column !== colour);

  const ordered = plottable.find((column) => column !== colour && isOrdered(column, rows, colour));
  const y = ordered === undefined ? undefined : (others(ordered).find(isNoBound) ?? others(ordered)[0]);
  if (ordered !== undefined && y !== undefined) {
    const isBar = isTile(ordered, rows) || /^(move|cell)$/.test(ordered.name);
    return { kind: isBar ? "bar" : "line", x: ordered.index, y: y.index, colour: colour?.index ?? null };
  }
  const isLabel = (column: ColumnInfo): boolean =>
    distinct(column) > rows.length / 4 && (distinct(column) > 1 || rows.length === 1);
  const label = labels.find((column) => column !== colour && isLabel(column)) ?? labels[0];
  // Means and shares are more useful than counts.
  const telling = measures.find((column) => !isCount(column) && isNoBound(column)) ?? measures[0];
  if (label !== undefined && telling !== undefined && isLabel(label)) {
    return { kind: "bar", x: label.index, y: telling.index, colour: colour === label ? null : (colour?.index ?? null) };
  }
  const [first, second] = measures.filter((column) => column !== colour);
  if (first !== undefined && second !== undefined) {
    return { kind: "dot", x: first.index, y: second.index, colour: colour?.index ?? null };
  }
  const only = first ?? label ?? plottable[0];
  return only === undefined ? null : { kind: "histogram", x: only.index, y: null, colour: colour?.index ?? null };
}

/** Whether a column is neither the lower nor the upper bound of a bin or an interval. */
function isNoBound({ name }: ColumnInfo): boolean {
  return !/^(min|max|low|high|from|to)(_|$)|_(from|to|low|high)$/.test(name) || name === "max_score";
}

function isCount({ name }: ColumnInfo): boolean {
  return /^(n|num|count|cnt)(_|$)/.test(name);
}

/** Whether a column of numbers or times rises from row to row, within each series. */
function isOrdered(column: ColumnInfo, rows: Value[][], colour: ColumnInfo | null): boolean {
  if ((!isNumeric(column) && column.kind !== "time") || rows.length < 3 || /(^|_)id$/.test(column.name)) return false;
  const last = new Map<Value, Value>();
  for (const row of rows) {
    const series = colour === null ? null : (row[colour.index] ?? null);
    const value = row[column.index] ?? null;
    const before = last.get(series) ?? null;
    if (value === null || (before !== null && !(axisValue(value, column) > axisValue(before, column)))) return false;
    last.set(series, value);
  }
  return last.size < rows.length / 2;
}

/** Whether a column has tiles: powers of two, which are equally spaced on an axis. */
export function isTile(column: ColumnInfo, rows: Value[][]): boolean {
  if (column.kind !== "int" || !column.name.includes("tile")) return false;
  const values = rows.map((row) => row[column.index] ?? null);
  return values.every((value) => typeof value === "number" && value >= 2 && Number.isInteger(Math.log2(value)));
}

/** A value for an axis: a number, a time, or a text. */
export function axisValue(value: Value, column: ColumnInfo): number | Date | string {
  if (value === null) return isNumeric(column) ? Number.NaN : "null";
  if (isNumeric(column)) return Number(value);
  if (column.kind === "time") return new Date(String(value));
  return String(value);
}
