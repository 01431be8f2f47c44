// The contents of the archive, and the missing data of its runs.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Row } from "../data";
import { number, text } from "../data";
import type { Child } from "../dom";
import { el, svg } from "../dom";
import { count, formatNumber, formatShare, formatTime, NO_ENGINE } from "../format";
import { heat, heatText } from "../heat";
import { clipped, linked, scoreAxis } from "../marks";
import { equals } from "../series";
import { tileChip } from "../tiles";
import { isSpread } from "./scores";

export const contents: Section = {
  id: "contents",
  title: "Archive contents",
  lede:
    "The runs and steps of the archive, and the scores of its engines. The table shows the share of the runs or " +
    "steps that lack some data, by engine and file format.",
  keys: ["archive_summary", "engine_leaderboard"],
  content(context) {
    const rows = context.rows("archive_summary");
    return [
      rows.length === 0 ? null : figures(rows),
      context.rows("engine_leaderboard").length === 0 ? null : leaderboard(context),
      rows.length === 0 ? null : missing(context, rows),
    ];
  },
};

function sum(rows: readonly Row[], column: string): number {
  return rows.reduce((total, row) => total + (number(row, column) || 0), 0);
}

function most(rows: readonly Row[], column: string): number {
  return Math.max(0, ...rows.map((row) => number(row, column) || 0));
}

function values(rows: readonly Row[], column: string): string[] {
  return rows.map((row) => text(row, column)).filter((value) => value !== null);
}

function day(time: string): string {
  return formatTime(time).slice(0, 10);
}

/** The archive's totals as a list of large numbers. */
function figures(rows: readonly Row[]): HTMLElement {
  const engines = new Set(values(rows, "engine"));
  const hasNone = rows.some((row) => text(row, "engine") === null);
  const formats = [...new Set(values(rows, "format"))];
  const runs = sum(rows, "num_runs");
  const steps = sum(rows, "num_steps");
  const best = most(rows, "best_tile");
  const minutes = sum(rows, "elapsed_s") / 60;
  const entries: [string, Child, Child?][] = [
    ["Runs", formatNumber(runs), `${formatShare(sum(rows, "num_verified") / runs)} verified`],
    ["Steps", formatNumber(steps), `${formatNumber(Math.round(steps / runs))} per run`],
    ["Engines", formatNumber(engines.size), hasNone ? "and runs without an engine" : null],
    ["Formats", formatNumber(formats.length), formats.join(", ")],
    ["Best score", formatNumber(most(rows, "max_score"))],
    ["Largest tile", best > 0 ? tileChip(best) : "–"],
    ["Longest run", count(most(rows, "max_steps"), "step")],
  ];
  if (minutes > 0) {
    entries.push([
      "Time played",
      minutes >= 90 ? count(Math.round(minutes / 60), "hour") : count(Math.ceil(minutes), "minute"),
    ]);
  }
  for (const [name, which] of [
    ["Games started", "start"],
    ["Runs added", "ingest"],
  ]) {
    const [from] = values(rows, `first_${which}`).map(day).sort();
    const to = values(rows, `last_${which}`).map(day).sort().at(-1);
    if (name !== undefined && from !== undefined && to !== undefined) {
      entries.push([name, from, from === to ? null : `to ${to}`]);
    }
  }
  return el(
    "dl",
    { class: "figures" },
    ...entries.map(([name, value, more]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, value), more ? el("dd", { class: "more" }, more) : null),
    ),
  );
}

/** The marks of the leaderboard beside the mean. */
const STATISTICS = [
  { column: "median_score", name: "median", symbol: "diamond", path: "M0-5L3.6 0L0 5L-3.6 0Z" },
  { column: "p90_score", name: "90th percentile", symbol: "triangle", path: "M0-4.6L4.4 3.4H-4.4Z" },
  {
    column: "best_score",
    name: "best",
    symbol: "star",
    path: "M0-5L1.3-1.6L4.8-1.5L2 .7L3 4.1L0 2.1L-3 4.1L-2 .7L-4.8-1.5L-1.3-1.6Z",
  },
] as const;

/** The meaning of the leaderboard's marks. */
function statisticsLegend(): HTMLElement {
  const entry = (name: string, ...shapes: SVGElement[]): HTMLElement =>
    el(
      "span",
      { class: "entry" },
      svg("svg", { class: "swatch", width: 24, height: 14, viewBox: "-12 -7 24 14", "aria-hidden": "true" }, ...shapes),
      name,
    );
  return el(
    "div",
    { class: "legend" },
    entry(
      "mean with 95 % interval",
      svg("path", { d: "M-12 0H12", stroke: "currentColor", "stroke-width": 7, "stroke-opacity": 0.3 }),
      svg("circle", { r: 4, fill: "currentColor" }),
    ),
    ...STATISTICS.map((one) =>
      entry(
        one.name,
        svg("path", { d: one.path, fill: "var(--background)", stroke: "currentColor", "stroke-width": 1.5 }),
      ),
    ),
  );
}

/** Mean, median, 90th percentile and best score of each engine. */
function leaderboard(context: Context): HTMLElement {
  return context.chart({
    title: "Scores by engine",
    isWide: true,
    log: isSpread(context),
    key: statisticsLegend(),
    draw(width, isLog) {
      const result = context.result("engine_leaderboard");
      const parts = result === null ? [] : context.series.split(result);
      if (parts.length === 0) return null;
      const lines = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const mean = number(row, "mean_score");
          const error = number(row, "score_error") || 0;
          const runs = count(number(row, "num_runs"), "run");
          const title = `${series.label}: mean score ${formatNumber(Math.round(mean))} of ${runs}`;
          return {
            row,
            series,
            index: series.index,
            mean,
            title,
            href: context.links.runs(series.condition),
            low: mean - 1.96 * error,
            high: mean + 1.96 * error,
          };
        }),
      );
      const scores = lines.flatMap(({ row, mean }) => [mean, ...STATISTICS.map(({ column }) => number(row, column))]);
      const marginLeft = Math.min(200, Math.max(90, width * 0.22));
      const names = new Map(lines.map((line) => [line.index, line.series.label]));
      const least = Math.min(...scores.filter((score) => score > 0));
      return {
        width,
        height: 60 + 34 * lines.length,
        marginLeft,
        marginRight: 24,
        marginTop: 12,
        marginBottom: 38,
        x: { ...scoreAxis(width, isLog, scores), insetLeft: 10 },
        y: {
          domain: lines.map((line) => line.index),
          label: null,
          tickFormat: (index: number) => clipped(names.get(index) ?? "", marginLeft - 10),
          tickSize: 0,
        },
        marks: [
          Plot.ruleY(
            lines.filter((line) => line.high > line.low),
            {
              y: "index",
              x1: (line: { low: number }) => Math.max(isLog ? least : 0, line.low),
              x2: "high",
              stroke: (line: { series: { color: string } }) => line.series.color,
              strokeWidth: 8,
              strokeOpacity: 0.3,
            },
          ),
          ...STATISTICS.map(({ column, name, symbol }) =>
            Plot.dot(
              lines.map((line) => {
                const score = number(line.row, column);
                return {
                  ...line,
                  score,
                  title: `${line.series.label}: ${name} ${formatNumber(score)}`,
                  href: context.links.runs(line.series.condition, `max_score >= ${score}`),
                };
              }),
              {
                x: "score",
                y: "index",
                symbol,
                r: 4.5,
                fill: "var(--background)",
                stroke: (line: { series: { color: string } }) => line.series.color,
                strokeWidth: 1.8,
                ...linked(),
              },
            ),
          ),
          Plot.dot(lines, {
            x: "mean",
            y: "index",
            r: 4.5,
            fill: (line: { series: { color: string } }) => line.series.color,
            ...linked(),
          }),
        ],
      };
    },
  });
}

/** Kinds of missing data: the column of `summary`, its base, a name, and a condition over `runs` if there is one. */
const KINDS: { column: string; base: string; name: string; condition: string | null }[] = [
  { column: "num_sampled", base: "num_runs", name: "runs with dropped steps", condition: "num_steps < game_steps" },
  { column: "num_without_moves", base: "num_runs", name: "runs without moves", condition: null },
  { column: "steps_without_move", base: "num_steps", name: "steps without a move", condition: null },
  { column: "num_without_evs", base: "num_runs", name: "runs without EVs", condition: null },
  { column: "steps_without_evs", base: "num_steps", name: "steps without EVs", condition: null },
  { column: "num_raw_evs", base: "num_runs", name: "runs with raw EVs", condition: "raw_evs" },
  {
    column: "num_without_final",
    base: "num_runs",
    name: "runs without a final board",
    condition: "final_board IS NULL",
  },
  {
    column: "num_stopped",
    base: "num_runs",
    name: "runs stopped before the end",
    condition: "NOT is_terminal(final_board, final_tile_65536_mask)",
  },
  { column: "num_unverified", base: "num_runs", name: "runs that break the rules", condition: "NOT verified" },
];

/** The share of runs or steps of each engine and format that lack something, as a table in colours. */
function missing(context: Context, rows: readonly Row[]): HTMLElement {
  const cell = (row: Row, kind: (typeof KINDS)[number]): HTMLElement => {
    const base = number(row, kind.base);
    const value = kind.column === "num_unverified" ? base - number(row, "num_verified") : number(row, kind.column);
    const share = base > 0 ? value / base : 0;
    const conditions = [equals("engine", text(row, "engine")), equals("format", text(row, "format")), kind.condition];
    const href = value > 0 ? context.links.runs(...conditions) : null;
    const shown = value === 0 ? "0" : formatShare(share);
    const element = el(
      "td",
      { class: "number heat", title: `${formatNumber(value)} of ${formatNumber(base)}` },
      href === null ? shown : el("a", { href }, shown),
    );
    element.style.background = heat(share);
    element.style.color = heatText(share);
    return element;
  };
  const names = ["engine", "format", "runs", "steps", ...KINDS.map((kind) => kind.name)];
  return el(
    "figure",
    { class: "chart wide" },
    el("figcaption", {}, "Missing or unusual data, as shares"),
    el(
      "div",
      { class: "scroll", role: "region", "aria-label": "Missing or unusual data", tabindex: 0 },
      el(
        "table",
        { class: "missing" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ...names.map((name, index) => el("th", { scope: "col", class: index > 1 ? "number" : null }, name)),
          ),
        ),
        el(
          "tbody",
          {},
          ...rows.map((row) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, el("bdi", {}, text(row, "engine") ?? NO_ENGINE)),
              el("td", {}, text(row, "format") ?? "–"),
              el("td", { class: "number" }, formatNumber(number(row, "num_runs"))),
              el("td", { class: "number" }, formatNumber(number(row, "num_steps"))),
              ...KINDS.map((kind) => cell(row, kind)),
            ),
          ),
        ),
      ),
    ),
  );
}
