// The kinds of columns. The form of values and the choice of a chart depend on them.

import type { QueryResult, ResultColumn, Value } from "../../api/types";

export type Kind = "int" | "float" | "text" | "bool" | "time" | "board" | "other";

export interface ColumnInfo extends ResultColumn {
  index: number;
  kind: Kind;
}

export function columnsOf({ columns }: Pick<QueryResult, "columns">): ColumnInfo[] {
  return columns.map((column, index) => ({ ...column, index, kind: column.board ? "board" : kindOf(column.type) }));
}

function kindOf(type: string): Kind {
  const name = type.toLowerCase();
  if (/^u?int\d*/.test(name)) return "int";
  if (/^(float|double|half|decimal|real)/.test(name)) return "float";
  if (/^(utf8|string|large_?string|large_?utf8|dictionary|varchar|text)/.test(name)) return "text";
  if (name.startsWith("bool")) return "bool";
  if (/^(timestamp|date)/.test(name)) return "time";
  return "other";
}

export function isNumeric({ kind }: ColumnInfo): boolean {
  return kind === "int" || kind === "float";
}

/** Whether the numbers of a column are identifiers or codes, which have no thousands separators. */
export function isKey({ name }: ColumnInfo): boolean {
  return /(^|_)(id|index|step|seed|version|mask|move|exp|run|legal)$/.test(name);
}

/** A value as text, as in copies. */
export function textOf(value: Value): string {
  if (value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** The order of two values of a column; nulls are last. */
export function compare(a: Value, b: Value, { kind }: ColumnInfo): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (kind === "int" && (typeof a === "string" || typeof b === "string")) {
    const difference = BigInt(a as string) - BigInt(b as string);
    return difference < 0n ? -1 : difference > 0n ? 1 : 0;
  }
  if (typeof a === "number" && typeof b === "number") return a - b;
  const [left, right] = [textOf(a), textOf(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}
