// A value of a result as the content of a cell.

import type { QueryResult, Value } from "../../api/types";
import { ARROWS, boardOf, boardView, exponents } from "../../board";
import type { Child } from "../../dom";
import { copyButton, el } from "../../dom";
import { formatNumber } from "../../format";
import { positionRoute, runRoute } from "../../router";
import type { ColumnInfo } from "./columns";
import { isKey, textOf } from "./columns";

/** Makes the contents of cells, with links to the replay where a row names a run and a step. */
export class Cells {
  readonly #columns: ColumnInfo[];
  readonly #run: number;
  readonly #step: number;

  constructor(columns: ColumnInfo[]) {
    this.#columns = columns;
    this.#run = columns.findIndex(({ name, kind }) => name === "run_id" && kind === "int");
    this.#step = columns.findIndex(({ name, kind }) => /^step(_index)?$/.test(name) && kind === "int");
  }

  content(row: QueryResult["rows"][number], column: ColumnInfo): Child {
    const value = row[column.index] ?? null;
    if (value === null) return el("span", { class: "null" }, "null");
    if (column.kind === "board") return this.#board(row, column, String(value));
    const run = row[this.#run];
    if (typeof run === "number" && typeof value === "number") {
      if (column.index === this.#run) return el("a", { href: runRoute(run) }, String(value));
      if (column.index === this.#step) return el("a", { href: runRoute(run, value) }, String(value));
    }
    return el("span", { title: titleOf(value) }, shownText(value, column));
  }

  #board(row: QueryResult["rows"][number], column: ColumnInfo, digits: string): Child {
    if (!/^[0-9a-f]{16}$/.test(digits)) return digits;
    const { board, mask } = boardOf(exponents(digits, this.#mask(row, column)));
    return el(
      "span",
      { class: "cell-board" },
      el("a", { href: positionRoute(board, mask) }, boardView(board, mask)),
      el(
        "span",
        {},
        el("code", {}, digits),
        copyButton("Copy", digits, () => digits),
      ),
    );
  }

  /** The mask of the cells with 65,536, from the column that belongs to the board's column. */
  #mask(row: QueryResult["rows"][number], { name }: ColumnInfo): number {
    const partner = name.replace(/board$/, "tile_65536_mask");
    const index = partner === name ? -1 : this.#columns.findIndex((column) => column.name === partner);
    const mask = row[index];
    return typeof mask === "number" ? mask : 0;
  }
}

/** The text of a value in a table: rounded, and with thousands separators. */
export function shownText(value: Value, column: ColumnInfo): string {
  if (typeof value === "number") {
    if (column.name === "move" && ARROWS[value] !== undefined) return `${value} ${ARROWS[value]}`;
    return isKey(column) ? String(value) : formatNumber(value);
  }
  if (typeof value === "object") return JSON.stringify(value, (_, part: unknown) => roundedPart(part));
  return String(value);
}

function roundedPart(part: unknown): unknown {
  return typeof part === "number" && !Number.isInteger(part) ? Number(part.toPrecision(4)) : part;
}

/** The exact text, if the table rounds or shortens it. */
function titleOf(value: Value): string | null {
  const text = textOf(value);
  return text.length > 24 || (typeof value === "number" && !Number.isInteger(value)) ? text : null;
}
