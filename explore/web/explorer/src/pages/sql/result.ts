// The result of a query: as a table, as a chart, or as a file.

import type { Params, QueryResult } from "../../api/types";
import type { Context } from "../../context";
import { copyButton, el } from "../../dom";
import { count, formatNumber, formatSeconds } from "../../format";
import { ChartView } from "./chart";
import { downloads } from "./downloads";
import { Grid } from "./grid";
import type { Source } from "./source";

interface ResultOptions {
  context: Context;
  result: QueryResult;
  source: Source;
  params: Params;
  limit: number;
  /** Runs the query again for up to this number of rows. */
  showMore(limit: number): void;
}

type View = "table" | "chart";
/** The view that the reader chose last. */
let lastView: View = "table";

export class ResultView {
  readonly element: HTMLElement;
  readonly #grid: Grid;
  readonly #chart: ChartView | null;

  constructor(options: ResultOptions) {
    const { context, result, source, params } = options;
    this.#grid = new Grid(result);
    this.#chart = result.rows.length > 0 ? new ChartView(result) : null;
    const views = new Map<View, HTMLElement>([["table", this.#grid.element]]);
    if (this.#chart !== null) views.set("chart", this.#chart.element);
    this.element = el(
      "div",
      { class: "result" },
      el(
        "div",
        { class: "result-tools" },
        this.#facts(options),
        views.size > 1 ? viewChoice(views) : null,
        result.columns.length > 0 ? downloads(context, source, params) : null,
      ),
      ...views.values(),
      "name" in source ? shownSql(result.sql) : null,
    );
  }

  leave(): void {
    this.#grid.leave();
    this.#chart?.leave();
  }

  #facts({ context, result, source, limit, showMore }: ResultOptions): HTMLElement {
    const rows = result.has_more ? `first ${count(result.num_rows, "row")}` : count(result.num_rows, "row");
    const facts = el(
      "p",
      { class: "result-facts" },
      "name" in source ? el("code", {}, source.name) : null,
      "name" in source ? ": " : null,
      el("strong", {}, rows),
      el("span", { class: "hint" }, ` in ${formatSeconds(result.seconds)}`),
    );
    if (!result.has_more) return facts;
    facts.append(el("span", { class: "limit-note" }, " Further rows are not shown. "));
    const most = context.archive.max_rows;
    if (limit < most) {
      const more = el("button", { type: "button" }, `Show up to ${formatNumber(most)}`);
      more.addEventListener("click", () => showMore(most));
      facts.append(more);
    }
    return facts;
  }
}

function viewChoice(views: Map<View, HTMLElement>): HTMLElement {
  const buttons = new Map<View, HTMLButtonElement>();
  const show = (view: View): void => {
    lastView = view;
    for (const [name, element] of views) element.hidden = name !== view;
    for (const [name, button] of buttons) button.setAttribute("aria-pressed", String(name === view));
  };
  for (const [name, title] of [
    ["table", "Table"],
    ["chart", "Chart"],
  ] as const) {
    const button = el("button", { type: "button" }, title);
    button.addEventListener("click", () => show(name));
    buttons.set(name, button);
  }
  show(views.has(lastView) ? lastView : "table");
  return el("div", { class: "view-choice", role: "group", "aria-label": "View" }, ...buttons.values());
}

function shownSql(sql: string): HTMLElement {
  return el(
    "details",
    { class: "shown-sql" },
    el("summary", {}, "The query's SQL"),
    copyButton("Copy", "the query's SQL", () => sql),
    el("pre", { tabindex: 0 }, sql.trimEnd()),
  );
}
