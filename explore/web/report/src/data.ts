// The data of the report: one JSON object that the command puts into the page.

/** A value of a result. Boards (uint64) are strings of 16 hex digits. NaN and infinities are null. */
export type Cell = string | number | boolean | null | Cell[];

export type Row = Readonly<Record<string, Cell | undefined>>;

/** The result of one named query. */
export interface Result {
  query: string;
  parameters: Record<string, Cell>;
  columns: string[];
  types: string[];
  rows: Cell[][];
  seconds: number;
  error: string | null;
  note: string | null;
}

export interface Report {
  title: string;
  version: number;
  written: string;
  program: string;
  where: string | null;
  by: "engine" | "ingest" | "format" | "session" | null;
  explorer: string | null;
  phases: { mid: number; late: number };
  results: Record<string, Result>;
}

/** Returns the page's data, or null if the template was never filled in. */
export function readReport(): Report | null {
  const text = document.getElementById("data")?.textContent ?? "{}";
  const data = JSON.parse(text) as Partial<Report>;
  return data.results === undefined ? null : (data as Report);
}

const cache = new WeakMap<Result, Row[]>();

/** Returns the rows as objects with one property per column. */
export function rowsOf(result: Result): Row[] {
  let rows = cache.get(result);
  if (rows === undefined) {
    rows = result.rows.map((cells) => Object.fromEntries(result.columns.map((name, index) => [name, cells[index]])));
    cache.set(result, rows);
  }
  return rows;
}

/** Returns the number in a column, or NaN if it is absent or null. */
export function number(row: Row, column: string): number {
  const value = row[column];
  return typeof value === "number" ? value : Number.NaN;
}

/** Returns the text in a column, or null if it is absent or null. */
export function text(row: Row, column: string): string | null {
  const value = row[column];
  return value === null || value === undefined ? null : String(value);
}

/** Groups rows by a key, in the order of first appearance. */
export function groups<Key>(rows: readonly Row[], key: (row: Row) => Key): Map<Key, Row[]> {
  const result = new Map<Key, Row[]>();
  for (const row of rows) {
    const group = result.get(key(row));
    if (group === undefined) result.set(key(row), [row]);
    else group.push(row);
  }
  return result;
}
