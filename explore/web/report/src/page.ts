// The frame of the page: header, table of contents, and for each section its text, charts, queries and data.

import { commandLine } from "./command";
import type { Section } from "./context";
import { Context } from "./context";
import type { Report } from "./data";
import type { Child } from "./dom";
import { copyButton, el } from "./dom";
import { formatTime } from "./format";
import { swatch } from "./series";
import { dataTable } from "./table";
import { themeButton } from "./theme";

/** Builds the page. */
export function pageOf(report: Report, sections: readonly Section[]): Node[] {
  const context = new Context(report);
  document.title = `${report.title} – a2store report`;
  return [
    el("a", { class: "skip", href: "#main" }, "Skip to the content"),
    el(
      "div",
      { class: "layout" },
      el(
        "nav",
        { "aria-label": "Contents" },
        el("p", { class: "nav-title" }, "Contents"),
        el("ul", {}, ...sections.map((section) => el("li", {}, el("a", { href: `#${section.id}` }, section.title)))),
      ),
      el(
        "div",
        { class: "content" },
        header(report, context),
        el("main", { id: "main", tabindex: -1 }, ...sections.map((section) => sectionOf(context, section))),
        footer(report),
      ),
    ),
    el("div", { id: "status", class: "offscreen", role: "status" }),
  ];
}

function header(report: Report, context: Context): HTMLElement {
  const facts: [string, Child][] = [
    ["version", String(report.version)],
    ["written", el("time", { datetime: report.written }, formatTime(report.written))],
    ["by", report.program],
  ];
  if (report.where !== null) facts.push(["only runs with", el("code", {}, report.where)]);
  return el(
    "header",
    {},
    el("div", { class: "title" }, el("h1", {}, el("bdi", {}, report.title)), themeButton()),
    el("p", { class: "facts" }, ...facts.map(([name, value]) => el("span", {}, `${name} `, value))),
    context.links.exist
      ? el(
          "p",
          { class: "hint" },
          "Marks in charts are links to their runs. " +
            "The Tab key moves to the next chart, and the arrow keys move to the next mark.",
        )
      : null,
    report.by === null && context.series.all.length > 1
      ? el("p", { class: "hint" }, "The charts show all runs together, unless they have a legend of engines.")
      : null,
    engineChoice(context),
  );
}

/** Checkboxes for the engines that charts show; none for a single engine. */
function engineChoice(context: Context): HTMLElement | null {
  const { series } = context;
  if (series.all.length < 2) return null;
  return el(
    "fieldset",
    { class: "engines" },
    el("legend", {}, "Engines in the charts"),
    ...series.all.map((one) => {
      const box = el("input", { type: "checkbox" });
      box.checked = series.isShown(one);
      box.addEventListener("change", () => {
        series.show(one, box.checked);
      });
      return el("label", {}, box, " ", swatch(one), " ", el("bdi", {}, one.label));
    }),
  );
}

function sectionOf(context: Context, section: Section): HTMLElement {
  const { results } = context.report;
  const headingId = `${section.id}-title`;
  const link = el("a", { class: "anchor", href: `#${section.id}`, "aria-label": `Link to ${section.title}` }, "#");
  const known = section.keys.filter((key) => results[key] !== undefined);
  return el(
    "section",
    { id: section.id, "aria-labelledby": headingId },
    el("h2", { id: headingId }, section.title, link),
    el("p", { class: "lede" }, section.lede),
    ...remarks(section, results),
    known.length === 0 ? null : el("div", { class: "charts" }, ...shown(context, section)),
    known.length === 0 ? null : el("div", { class: "sources" }, ...known.map((key) => source(context, section, key))),
  );
}

/** Messages about a section's results: missing results, failed queries, notes and empty results. */
function remarks(section: Section, results: Report["results"]): HTMLElement[] {
  const known = section.keys.flatMap((key) => results[key] ?? []);
  const isEmpty = known.every((result) => result.error === null && result.rows.length === 0);
  if (isEmpty && (known.length === 0 || section.absent !== undefined)) {
    return [el("p", { class: "absent" }, section.absent ?? `This report has no result of ${section.keys.join(", ")}.`)];
  }
  return section.keys.flatMap((key) => {
    const result = results[key];
    if (result === undefined) {
      return [el("p", { class: "absent" }, "This report has no result of ", el("code", {}, key), ".")];
    }
    const name = el("code", {}, result.query);
    if (result.error !== null) {
      return [el("p", { class: "error" }, "The query ", name, ` failed: ${result.error}`)];
    }
    const parts: HTMLElement[] = [];
    if (result.note !== null) parts.push(el("p", { class: "note" }, name.cloneNode(true), `: ${result.note}`));
    if (result.rows.length === 0) parts.push(el("p", { class: "absent" }, "The query ", name, " has no rows."));
    return parts;
  });
}

/** A section whose data has an unexpected form must not hide the other sections. */
function shown(context: Context, section: Section): Node[] {
  try {
    const parts = section.content(context).filter((part) => part instanceof Node);
    return parts;
  } catch (error) {
    return [el("p", { class: "error" }, `The charts of this section failed: ${String(error)}`)];
  }
}

/** The query behind a chart as a command line, and its rows. */
function source(context: Context, section: Section, key: string): HTMLElement | null {
  const result = context.report.results[key];
  if (result === undefined) return null;
  const command = commandLine(context.report.title, result);
  return el(
    "div",
    { class: "source", id: `data-${key}` },
    el(
      "div",
      { class: "command" },
      el("code", { tabindex: 0, role: "region", "aria-label": `Command for ${key}` }, command),
      copyButton("Copy", `command for ${key}`, () => command),
    ),
    result.error === null ? dataTable(result, `${section.title}: ${key}`) : null,
  );
}

function footer(report: Report): HTMLElement {
  const seconds = Object.values(report.results).reduce((sum, result) => sum + result.seconds, 0);
  return el(
    "footer",
    {},
    el(
      "p",
      {},
      `${report.program}. ${Object.keys(report.results).length} queries in ${seconds.toFixed(1)} s. ` +
        "This page is one file, works offline and sends no requests.",
    ),
  );
}
