// Charts that redraw when the window or the choice of engines changes, and whose marks are links.

import * as Plot from "@observablehq/plot";
import { append, el } from "./dom";
import type { Child } from "./dom";
import type { Series, SeriesList } from "./series";
import { swatch } from "./series";
import { explainMarks, moveLabels } from "./tooltip";

export interface Chart {
  /** The title, which is above the chart and also its accessible name. */
  title: string;
  /** Draws the chart at a width in pixels; null = nothing to draw for the chosen engines. */
  draw(width: number, isLog: boolean): Plot.PlotOptions | null;
  /** Offers a logarithmic axis, and says whether the chart has it at first. */
  log?: boolean;
  /** The series of the legend, if the chart distinguishes series by colour. */
  legend?: () => readonly Series[];
  /** A legend of another kind. */
  key?: Child;
  /** Whether the chart takes the full width of the page. */
  isWide?: boolean;
  /** The largest useful width in pixels. */
  maxWidth?: number;
}

const FONT = { fontSize: "0.75rem", overflow: "visible" };

/** A figure with a chart. It draws once it has a width. */
export function chartFigure(chart: Chart, series: SeriesList): HTMLElement {
  const plot = el("div", { class: "plot" });
  const legend = el("div", { class: "legend" });
  const figure = el("figure", { class: chart.isWide === true ? "chart wide" : "chart" });
  let isLog = chart.log === true;
  let drawn = 0;
  const draw = (): void => {
    drawn = Math.floor(plot.clientWidth);
    if (drawn === 0) return;
    if (chart.legend !== undefined) legend.replaceChildren(...seriesLegend(chart.legend()));
    const options = chart.draw(Math.min(drawn, chart.maxWidth ?? Number.POSITIVE_INFINITY), isLog);
    plot.replaceChildren(
      options === null
        ? el("p", { class: "empty" }, "No data for the chosen engines.")
        : rendered(chart.title, options),
    );
  };
  const toggle = (isChecked: boolean): void => {
    isLog = isChecked;
    draw();
  };
  append(
    figure,
    el("figcaption", {}, chart.title),
    chart.log === undefined ? null : logBox(isLog, toggle),
    chart.legend === undefined ? null : legend,
    chart.key,
    plot,
  );
  new ResizeObserver(() => {
    if (Math.floor(plot.clientWidth) !== drawn) draw();
  }).observe(plot);
  series.onChange(draw);
  explainMarks(plot);
  return figure;
}

function logBox(isLog: boolean, toggle: (isChecked: boolean) => void): HTMLElement {
  const box = el("input", { type: "checkbox" });
  box.checked = isLog;
  box.addEventListener("change", () => {
    toggle(box.checked);
  });
  return el("label", { class: "option" }, box, " logarithmic axis");
}

function rendered(title: string, options: Plot.PlotOptions): Element {
  const element = Plot.plot({ ...options, className: "a2", style: FONT, figure: false });
  const links = [...element.querySelectorAll<SVGAElement>("a")];
  moveLabels(element);
  element.setAttribute("aria-label", title);
  // An image has no parts for screen readers, so a chart with links is a group.
  element.setAttribute("role", links.length > 0 ? "group" : "img");
  if (links.length > 0) makeNavigable(element, links);
  return element;
}

/** Makes the links of a chart one stop of the Tab key; the arrow keys move between them. */
function makeNavigable(element: Element, links: SVGAElement[]): void {
  links.forEach((link, index) => {
    link.setAttribute("tabindex", index === 0 ? "0" : "-1");
  });
  element.addEventListener("keydown", (event) => {
    if (!(event instanceof KeyboardEvent)) return;
    const at = links.indexOf(document.activeElement as unknown as SVGAElement);
    const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const target =
      event.key === "Home" ? 0 : event.key === "End" ? links.length - 1 : at + (steps[event.key] ?? Number.NaN);
    const link = links[target];
    if (at < 0 || link === undefined) return;
    event.preventDefault();
    links[at]?.setAttribute("tabindex", "-1");
    link.setAttribute("tabindex", "0");
    link.focus();
  });
}

/** Samples and names of series. */
export function seriesLegend(series: readonly Series[]): HTMLElement[] {
  return series.map((one) => el("span", { class: "entry" }, swatch(one), el("bdi", {}, one.label)));
}
