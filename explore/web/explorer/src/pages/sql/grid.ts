// The rows of a result as a table, which has elements only for the rows in view.

import type { QueryResult } from "../../api/types";
import { copyButton, el } from "../../dom";
import { showDialog } from "../../dialog";
import { Cells, shownText } from "./cells";
import type { ColumnInfo } from "./columns";
import { columnsOf, compare, isNumeric, textOf } from "./columns";

/** Rows above and below the visible ones, for smooth scrolling. */
const MARGIN = 12;
/** The number of rows that determine the widths of columns. */
const SAMPLE = 300;
const MAX_WIDTH = 44;
const BOARD_WIDTH = 29;

export class Grid {
  readonly element: HTMLElement;
  readonly #columns: ColumnInfo[];
  readonly #cells: Cells;
  readonly #result: QueryResult;
  readonly #body = el("tbody");
  readonly #headers: HTMLElement[];
  readonly #scroll: HTMLElement;
  readonly #sizes = new ResizeObserver(() => this.#draw());
  /** The order of rows: indices into the result. */
  #order: number[];
  #sort: { column: number; descending: boolean } | null = null;
  #rowHeight = 28;
  #drawn = "";

  constructor(result: QueryResult) {
    this.#result = result;
    this.#columns = columnsOf(result);
    this.#cells = new Cells(this.#columns);
    this.#order = result.rows.map((_, index) => index);
    this.#headers = this.#columns.map((column) => this.#header(column));
    const widths = this.#columns.map((column) => widthOf(column, result));
    const first = String(result.rows.length).length + 4;
    const isTall = this.#columns.some(({ kind }) => kind === "board");
    const table = el(
      "table",
      { class: `grid${isTall ? " tall" : ""}`, "aria-rowcount": result.rows.length + 1 },
      el("caption", { class: "offscreen" }, "Result"),
      el("colgroup", {}, column(first), ...widths.map(column)),
      el(
        "thead",
        {},
        el("tr", { "aria-rowindex": 1 }, el("th", { scope: "col", class: "number" }, "Row"), ...this.#headers),
      ),
      this.#body,
    );
    table.style.width = `${widths.reduce((sum, width) => sum + width, first)}ch`;
    this.#scroll = el("div", { class: "grid-scroll", role: "region", "aria-label": "Rows", tabindex: 0 }, table);
    this.#scroll.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.#sizes.observe(this.#scroll);
    this.element = this.#scroll;
  }

  leave(): void {
    this.#sizes.disconnect();
  }

  #header(info: ColumnInfo): HTMLElement {
    const button = el(
      "button",
      { type: "button", class: "sort", title: `${info.type}. Sort the shown rows` },
      info.name,
    );
    button.addEventListener("click", () => this.#sortBy(info.index));
    return el(
      "th",
      { scope: "col", class: isNumeric(info) ? "number" : null },
      button,
      el("span", { class: "column-type" }, info.board ? "board" : shortType(info.type)),
    );
  }

  /** Sorts the rows: ascending, then descending, then in the order of the query. */
  #sortBy(index: number): void {
    const info = this.#columns[index];
    if (info === undefined) return;
    if (this.#sort?.column !== index) this.#sort = { column: index, descending: false };
    else this.#sort = this.#sort.descending ? null : { column: index, descending: true };
    this.#headers.forEach((header) => header.removeAttribute("aria-sort"));
    this.#order = this.#result.rows.map((_, row) => row);
    if (this.#sort !== null) {
      const { descending } = this.#sort;
      this.#headers[index]?.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const value = (row: number) => this.#result.rows[row]?.[index] ?? null;
      this.#order.sort((a, b) => {
        const isNull = value(a) === null || value(b) === null;
        return compare(value(a), value(b), info) * (descending && !isNull ? -1 : 1) || a - b;
      });
    }
    this.#drawn = "";
    this.#draw();
  }

  #draw(): void {
    const total = this.#order.length;
    const { scrollTop, clientHeight } = this.#scroll;
    const visible = Math.ceil((clientHeight || 600) / this.#rowHeight);
    const first = Math.max(Math.min(Math.floor(scrollTop / this.#rowHeight), total - visible) - MARGIN, 0);
    const last = Math.min(first + visible + 2 * MARGIN, total);
    const drawn = `${first}-${last}-${this.#rowHeight}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    const rows = this.#order.slice(first, last).map((row, index) => this.#row(row, first + index));
    this.#body.replaceChildren(spacer(first * this.#rowHeight), ...rows, spacer((total - last) * this.#rowHeight));
    const height = rows[0]?.getBoundingClientRect().height ?? 0;
    if (height > 0 && Math.abs(height - this.#rowHeight) > 0.5) {
      this.#rowHeight = height;
      this.#draw();
    }
  }

  #row(index: number, shownAt: number): HTMLElement {
    const row = this.#result.rows[index] ?? [];
    const number = el("button", { type: "button", "aria-label": `Details of row ${index + 1}` }, String(index + 1));
    number.addEventListener("click", () => this.#details(index));
    return el(
      "tr",
      { "aria-rowindex": shownAt + 2, class: shownAt % 2 === 1 ? "odd" : null },
      el("th", { scope: "row", class: "number" }, number),
      ...this.#columns.map((info) =>
        el("td", { class: isNumeric(info) ? "number" : null }, this.#cells.content(row, info)),
      ),
    );
  }

  /** All values of a row in full. */
  #details(index: number): void {
    const row = this.#result.rows[index] ?? [];
    const object = Object.fromEntries(this.#columns.map((info) => [info.name, row[info.index] ?? null]));
    showDialog(
      `Row ${index + 1}`,
      el(
        "dl",
        { class: "row-details" },
        ...this.#columns.flatMap((info) => {
          const value = row[info.index] ?? null;
          const content = value === null || info.board ? this.#cells.content(row, info) : el("pre", {}, textOf(value));
          return [
            el("dt", {}, info.name, " ", el("span", { class: "hint" }, shortType(info.type))),
            el("dd", {}, content),
          ];
        }),
      ),
      copyButton("Copy as JSON", null, () => JSON.stringify(object, null, 2)),
    );
  }
}

function widthOf(info: ColumnInfo, { rows }: QueryResult): number {
  if (info.kind === "board") return BOARD_WIDTH;
  const lengths = rows.slice(0, SAMPLE).map((row) => {
    const value = row[info.index] ?? null;
    return value === null ? 4 : shownText(value, info).length;
  });
  const content = lengths.reduce((longest, length) => Math.max(longest, length), 0);
  return Math.min(Math.max(content, info.name.length + 1, shortType(info.type).length) + 2, MAX_WIDTH);
}

function column(width: number): HTMLElement {
  const element = el("col");
  element.style.width = `${width}ch`;
  return element;
}

function spacer(height: number): HTMLElement {
  const row = el("tr", { class: "grid-spacer", "aria-hidden": "true" });
  row.style.height = `${height}px`;
  row.hidden = height === 0;
  return row;
}

function shortType(type: string): string {
  return type.length > 22 ? `${type.slice(0, 21)}…` : type;
}
