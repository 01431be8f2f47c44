// A result as an HTML table, drawn when its `details` element opens.

import type { Cell, Result } from "./data";
import { copyButton, el } from "./dom";
import { count, formatNumber } from "./format";
import { boardView } from "./tiles";

/** The number of rows that a table shows at first. */
const FIRST_ROWS = 500;

/** `details` with the rows of a result, all columns, and a button that copies them as CSV. */
export function dataTable(result: Result, label: string): HTMLElement {
  const summary = el("summary", {}, `Data: ${count(result.rows.length, "row")} of `, el("code", {}, result.query));
  const details = el("details", { class: "data" }, summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    details.append(...tableParts(result, label));
  });
  return details;
}

function tableParts(result: Result, label: string): HTMLElement[] {
  const body = el("tbody");
  const fill = (from: number, to: number): void => {
    for (const row of result.rows.slice(from, to)) body.append(tableRow(result, row));
  };
  fill(0, FIRST_ROWS);
  const header = el(
    "tr",
    {},
    ...result.columns.map((name, column) =>
      el("th", { scope: "col", class: isNumeric(result.types[column]) ? "number" : null }, name),
    ),
  );
  const table = el("table", {}, el("caption", { class: "offscreen" }, label), el("thead", {}, header), body);
  const region = el("div", { class: "scroll", role: "region", "aria-label": `Data: ${label}`, tabindex: 0 }, table);
  const tools = el(
    "p",
    { class: "tools" },
    copyButton("Copy as CSV", label, () => csv(result)),
  );
  if (result.rows.length > FIRST_ROWS) {
    const more = el("button", { type: "button" }, `Show all ${formatNumber(result.rows.length)} rows`);
    more.addEventListener("click", () => {
      fill(FIRST_ROWS, result.rows.length);
      more.remove();
      region.focus();
    });
    tools.append(" ", more);
  }
  return [tools, region];
}

function tableRow(result: Result, cells: readonly Cell[]): HTMLTableRowElement {
  const mask = cells[result.columns.indexOf("tile_65536_mask")];
  return el(
    "tr",
    {},
    ...result.columns.map((_, column) => {
      const value = cells[column] ?? null;
      if (isBoard(value, result.types[column])) {
        const view = boardView(value, typeof mask === "number" ? mask : 0);
        return el("td", { class: "has-board" }, view, el("code", {}, value));
      }
      if (typeof value === "number") {
        const shown = formatNumber(value);
        const isExact = Number.isInteger(value);
        return el("td", { class: "number", title: isExact ? null : String(value) }, shown);
      }
      return el("td", { class: value === null ? "null" : null }, cellText(value));
    }),
  );
}

function isBoard(value: Cell, type: string | undefined): value is string {
  return typeof value === "string" && type === "uint64" && /^[0-9a-f]{16}$/.test(value);
}

function isNumeric(type: string | undefined): boolean {
  return type !== undefined && /^(u?int|float|double|decimal)/.test(type);
}

function cellText(value: Cell): string {
  if (value === null) return "null";
  return Array.isArray(value) ? JSON.stringify(value) : String(value);
}

/** The rows as CSV, with exact numbers; a null is an empty field. */
export function csv(result: Result): string {
  const field = (value: Cell): string => {
    const content = value === null ? "" : cellText(value);
    return /[",\r\n]/.test(content) || value === "" ? `"${content.replaceAll('"', '""')}"` : content;
  };
  return [result.columns, ...result.rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
}
