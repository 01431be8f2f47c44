// A result as a chart whose columns the reader chooses.

import * as Plot from "@observablehq/plot";
import type { QueryResult } from "../../api/types";
import { debounce, el } from "../../dom";
import type { ChartChoice, ChartKind } from "./chartkind";
import { axisValue, CHART_KINDS, defaultChart, isPlottable, isTile } from "./chartkind";
import type { ColumnInfo } from "./columns";
import { colourScale } from "./colours";
import { columnsOf, isNumeric } from "./columns";
import type { Datum } from "./marks";
import { chartOptions } from "./marks";

export class ChartView {
  readonly element: HTMLElement;
  readonly #result: QueryResult;
  readonly #columns: ColumnInfo[];
  readonly #plot = el("div", { class: "chart-plot" });
  readonly #legend = el("div", { class: "chart-legend" });
  readonly #note = el("p", { class: "hint" });
  readonly #selects: Record<"kind" | "x" | "y" | "colour", HTMLSelectElement>;
  readonly #yLabel: HTMLElement;
  readonly #log = el("input", { type: "checkbox" });
  readonly #logLabel = el("label", {}, this.#log, " logarithmic");
  readonly #redraw = debounce(50, () => this.#draw());
  readonly #sizes = new ResizeObserver(() => this.#redraw());
  #choice: ChartChoice | null;

  constructor(result: QueryResult) {
    this.#result = result;
    this.#columns = columnsOf(result);
    this.#choice = defaultChart(this.#columns, result);
    const plottable = this.#columns.filter(isPlottable);
    const select = (options: [string, string][]): HTMLSelectElement =>
      el("select", {}, ...options.map(([value, text]) => el("option", { value }, text)));
    const all = plottable.map(({ index, name }): [string, string] => [String(index), name]);
    const numbers = plottable.filter(isNumeric).map(({ index, name }): [string, string] => [String(index), name]);
    this.#selects = {
      kind: select(CHART_KINDS.map((kind) => [kind, kind])),
      x: select(all),
      y: select([["", "number of rows"], ...numbers]),
      colour: select([["", "none"], ...all]),
    };
    this.#yLabel = field("y", this.#selects.y);
    for (const each of [...Object.values(this.#selects), this.#log]) {
      each.addEventListener("change", () => this.#chosen());
    }
    this.element = el(
      "div",
      { class: "chart-view" },
      el(
        "div",
        { class: "chart-tools" },
        field("Chart", this.#selects.kind),
        field("x", this.#selects.x),
        this.#yLabel,
        field("Colour", this.#selects.colour),
        this.#logLabel,
      ),
      this.#legend,
      this.#plot,
      this.#note,
    );
    this.#showChoice();
    this.#sizes.observe(this.#plot);
  }

  leave(): void {
    this.#redraw.cancel();
    this.#sizes.disconnect();
  }

  #showChoice(): void {
    if (this.#choice === null) return;
    const { kind, x, y, colour } = this.#choice;
    this.#selects.kind.value = kind;
    this.#selects.x.value = String(x);
    this.#selects.y.value = y === null ? "" : String(y);
    this.#selects.colour.value = colour === null ? "" : String(colour);
    this.#showFields();
  }

  /** A histogram counts rows, so it needs no column for y. */
  #showFields(): void {
    const isHistogram = this.#choice?.kind === "histogram";
    this.#yLabel.hidden = isHistogram;
    this.#logLabel.hidden = isHistogram;
  }

  #chosen(): void {
    const index = (select: HTMLSelectElement): number | null => (select.value === "" ? null : Number(select.value));
    this.#choice = {
      kind: this.#selects.kind.value as ChartKind,
      x: index(this.#selects.x) ?? 0,
      y: index(this.#selects.y),
      colour: index(this.#selects.colour),
    };
    this.#showFields();
    this.#draw();
  }

  #draw(): void {
    const width = Math.floor(this.#plot.clientWidth);
    if (width === 0) return;
    const x = this.#choice === null ? undefined : this.#columns[this.#choice.x];
    if (this.#choice === null || x === undefined) {
      this.#note.textContent = "The result has no column that a chart can show.";
      return;
    }
    const { kind } = this.#choice;
    const y = this.#choice.y === null ? null : (this.#columns[this.#choice.y] ?? null);
    const colour = this.#choice.colour === null ? null : (this.#columns[this.#choice.colour] ?? null);
    const data = this.#data(x, kind === "histogram" ? null : y, colour);
    const scale = colourScale(data, colour, colour !== null && isTile(colour, this.#result.rows));
    const { options, note } = chartOptions({
      kind,
      x,
      y,
      colour,
      data,
      width,
      isLog: this.#log.checked && kind !== "histogram",
      color: scale.color,
      hasTiles: isTile(x, this.#result.rows),
    });
    const drawn = Plot.plot(options);
    const title = kind === "histogram" ? `Histogram of ${x.name}` : `${y?.name ?? "number of rows"} by ${x.name}`;
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", title);
    // Only the chart as a whole has a name, and its own texts appear beside the pointer.
    for (const labelled of drawn.querySelectorAll("[aria-label]")) labelled.removeAttribute("aria-label");
    for (const text of drawn.querySelectorAll("title")) text.remove();
    this.#plot.replaceChildren(drawn);
    this.#legend.replaceChildren(...scale.legend);
    this.#note.textContent = [note, this.#result.has_more ? "The chart has only the shown rows." : ""].join(" ");
  }

  #data(x: ColumnInfo, y: ColumnInfo | null, colour: ColumnInfo | null): Datum[] {
    const isNumber = colour !== null && isNumeric(colour);
    return this.#result.rows
      .map((row) => ({
        x: axisValue(row[x.index] ?? null, x),
        y: y === null ? 1 : Number(axisValue(row[y.index] ?? null, y)),
        colour: colour === null ? "" : isNumber ? Number(row[colour.index]) : String(row[colour.index] ?? "null"),
      }))
      .filter((datum) => !Number.isNaN(datum.y) && !(typeof datum.x === "number" && Number.isNaN(datum.x)));
  }
}

function field(label: string, select: HTMLElement): HTMLElement {
  return el("label", {}, `${label} `, select);
}
