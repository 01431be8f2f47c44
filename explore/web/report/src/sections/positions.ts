// Repeated and unique positions, and the first moves of games.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Cell, Row } from "../data";
import { groups, number, text } from "../data";
import type { Child } from "../dom";
import { el, svg } from "../dom";
import { count, formatNumber, formatShare } from "../format";
import { clipped, linked, shareAxis } from "../marks";
import { boardView } from "../tiles";
import { moveLegend } from "./moves";

const PHASES = ["early", "mid", "late"];
const LETTERS = "UDLR";
const ARROWS = ["↑", "↓", "←", "→"];
const NAMES = ["up", "down", "left", "right"];

export const positions: Section = {
  id: "positions",
  title: "Positions and openings",
  lede:
    "The number of times that positions occur, up to the eight symmetries of the board, and the first moves of " +
    "games. In the tree, the height of a block is its share of the runs. The first board of each run is turned to " +
    "its canonical form.",
  keys: ["repeated_positions", "first_moves", "opening_book"],
  content: (context) => [
    context.result("repeated_positions") && repetition(context),
    context.result("first_moves") && tree(context),
    context.result("opening_book") && book(context),
  ],
};

function repetition(context: Context): HTMLElement {
  const result = context.result("repeated_positions");
  const oneIn = typeof result?.parameters["one_in"] === "number" ? result.parameters["one_in"] : 1;
  const rows = context.rows("repeated_positions");
  const times = (row: Row): string => {
    const [least, most] = [number(row, "min_times"), number(row, "max_times")];
    return least === most ? formatNumber(least) : `${formatNumber(least)}–${formatNumber(most)}`;
  };
  const domain = [...new Map(rows.map((row) => [number(row, "min_times"), times(row)]))]
    .sort(([a], [b]) => a - b)
    .map(([, name]) => name);
  const bars = rows.map((row) => {
    const phase = text(row, "phase") ?? "";
    const share = number(row, "share");
    return {
      phase,
      times: times(row),
      share,
      title:
        `${phase}: ${formatShare(share)} of the steps are on positions\nthat occur ${times(row)} times ` +
        `(${formatNumber(number(row, "num_positions") * oneIn)} positions${oneIn > 1 ? ", estimated" : ""})`,
      href: null,
    };
  });
  const present = PHASES.filter((phase) => bars.some((bar) => bar.phase === phase));
  const totals = present.map((phase) => {
    const own = rows.filter((row) => text(row, "phase") === phase);
    const total = (column: string): number => own.reduce((sum, row) => sum + number(row, column), 0) * oneIn;
    return `${phase}: ${count(total("num_positions"), "position")} in ${count(total("num_steps"), "step")}`;
  });
  return context.chart({
    title: "Steps by the number of times their position occurs",
    isWide: true,
    key: el(
      "div",
      {},
      el("p", { class: "hint" }, `${oneIn > 1 ? "Estimates: " : ""}${totals.join("; ")}.`),
      el(
        "div",
        { class: "legend" },
        ...present.map((phase) =>
          el(
            "span",
            { class: "entry" },
            svg(
              "svg",
              { class: "swatch", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
              svg("rect", { width: 12, height: 12, fill: `var(--phase-${PHASES.indexOf(phase)})` }),
            ),
            phase,
          ),
        ),
      ),
    ),
    draw: (width) => ({
      width,
      height: 240,
      marginLeft: 52,
      marginBottom: 42,
      marginRight: 8,
      fx: {
        domain,
        label: "times",
        axis: "bottom",
        padding: 0.15,
        labelAnchor: "center",
        tickRotate: domain.length > width / 60 ? -35 : 0,
      },
      x: { domain: present, axis: null },
      y: { ...shareAxis, label: "share of the phase's steps" },
      marks: [
        Plot.barY(bars, {
          fx: "times",
          x: "phase",
          y: "share",
          fill: (bar: { phase: string }) => `var(--phase-${PHASES.indexOf(bar.phase)})`,
          ...linked(),
        }),
        Plot.ruleY([0]),
      ],
    }),
  });
}

interface Block {
  series: number;
  depth: number;
  y1: number;
  y2: number;
  move: number;
  share: number;
  title: string;
  href: string | null;
}

/** Blocks of the tree: each path lies within the block of its parent. */
function blocks(context: Context): { labels: [number, string][]; blocks: Block[] } {
  const result = context.result("first_moves");
  const parts = result === null ? [] : context.series.split(result);
  const all = parts.flatMap(([series, rows]) => {
    const extent = new Map<string, [number, number]>([["", [0, 1]]]);
    const children = groups(
      [...rows].sort((a, b) => number(a, "num_moves") - number(b, "num_moves")),
      (row) => (text(row, "path") ?? "").slice(0, -1),
    );
    return [...children].flatMap(([parent, own]) => {
      const [from, to] = extent.get(parent) ?? [0, 0];
      let y = from;
      return own.map((row): Block => {
        const path = text(row, "path") ?? "";
        const share = number(row, "share");
        const y1 = y;
        y += share * (to - from);
        extent.set(path, [y1, y]);
        const arrows = [...path].map((letter) => ARROWS[LETTERS.indexOf(letter)] ?? "?").join(" ");
        return {
          series: series.index,
          depth: path.length,
          y1,
          y2: y,
          move: LETTERS.indexOf(path.at(-1) ?? ""),
          share,
          title:
            `${series.label}: ${arrows}\n` +
            `${count(number(row, "num_runs"), "run")}, ${formatShare(share)} of the move before; ` +
            `mean score ${formatNumber(Math.round(number(row, "mean_score")))}`,
          href: context.links.runs(series.condition),
        };
      });
    });
  });
  return { labels: parts.map(([series]) => [series.index, series.label]), blocks: all };
}

function tree(context: Context): HTMLElement {
  return context.chart({
    title: "First moves",
    key: moveLegend(),
    isWide: true,
    draw(width) {
      const { labels, blocks: all } = blocks(context);
      if (all.length === 0) return null;
      const depth = Math.max(...all.map((block) => block.depth));
      const columns = Math.min(labels.length, Math.max(1, Math.floor(width / 420)));
      const place = new Map(
        labels.map(([index], position) => [index, { fx: position % columns, fy: Math.floor(position / columns) }]),
      );
      const rows = Math.ceil(labels.length / columns);
      const facets = {
        fx: (item: { series: number }) => place.get(item.series)?.fx,
        fy: (item: { series: number }) => place.get(item.series)?.fy,
      };
      const facet = 150;
      return {
        width,
        height: 40 + rows * facet,
        marginLeft: 4,
        marginRight: 4,
        marginTop: 22,
        marginBottom: 24,
        x: {
          domain: [0, depth],
          ticks: Array.from({ length: depth }, (_, index) => index + 0.5),
          tickSize: 0,
          label: null,
          tickFormat: (value: number) => `move ${Math.ceil(value)}`,
        },
        y: { axis: null, domain: [1, 0] },
        fx: { axis: null, padding: columns > 1 ? 0.05 : 0 },
        fy: { axis: null, padding: 0.18 },
        marks: [
          Plot.rect(all, {
            ...facets,
            x1: (block: Block) => block.depth - 1,
            x2: "depth",
            y1: "y1",
            y2: "y2",
            fill: (block: Block) => `var(--move-${block.move})`,
            insetLeft: 0.5,
            insetRight: 0.5,
            insetTop: 0.3,
            insetBottom: 0.3,
            ...linked(),
          }),
          Plot.text(
            all.filter((block) => (block.y2 - block.y1) * facet > 17),
            {
              ...facets,
              x: (block: Block) => block.depth - 0.5,
              y: (block: Block) => (block.y1 + block.y2) / 2,
              text: (block: Block) => `${ARROWS[block.move] ?? ""} ${Math.round(block.share * 100)} %`,
              fill: "var(--move-text)",
              pointerEvents: "none",
            },
          ),
          Plot.text(
            labels.map(([series, label]) => ({ series, label })),
            {
              ...facets,
              text: (item: { label: string }) => clipped(item.label, width / columns),
              frameAnchor: "top-left",
              lineAnchor: "bottom",
              dy: -2,
              fontWeight: 600,
            },
          ),
        ],
      };
    },
  });
}

/** The number of steps on a position, as a link to the runs that visited it. */
function visits(context: Context, row: Row, steps: Cell | undefined): Child {
  const words = count(number(row, "num_steps"), "step");
  const position = text(row, "position") ?? "";
  if (!/^[0-9a-f]{16}$/.test(position)) return words;
  const first = typeof steps === "number" ? `step_index < ${steps} AND ` : "";
  const href = context.links.runs(
    `run_id IN (SELECT run_id FROM steps WHERE ${first}canonical(board) = ${BigInt(`0x${position}`)})`,
  );
  return href === null ? words : el("a", { href }, words);
}

/** The number of boards that the page shows; the table has more. */
const BOARDS = 8;

function book(context: Context): HTMLElement {
  const steps = context.result("opening_book")?.parameters["first_steps"];
  const rows = context.rows("opening_book").slice(0, BOARDS);
  return el(
    "div",
    { class: "wide" },
    el("h3", {}, `Most frequent positions in the first ${typeof steps === "number" ? steps : 20} steps`),
    el(
      "ul",
      { class: "gallery" },
      ...rows.map((row) => {
        const moves = ["up", "down", "left", "right"].map((move) => number(row, `num_${move}`));
        const total = moves.reduce((sum, played) => sum + played, 0);
        return el(
          "li",
          {},
          boardView(text(row, "position") ?? "", 0, "large"),
          el(
            "div",
            {},
            el(
              "p",
              {},
              visits(context, row, steps),
              el("br"),
              `mean score ${formatNumber(Math.round(number(row, "mean_score")))}`,
            ),
            el(
              "table",
              { class: "evs" },
              el("caption", { class: "offscreen" }, "Moves played there"),
              el(
                "tbody",
                {},
                ...moves.map((played, index) =>
                  el(
                    "tr",
                    {},
                    el("th", { scope: "row" }, `${ARROWS[index] ?? ""} ${NAMES[index] ?? ""}`),
                    el("td", { class: "number" }, formatShare(total > 0 ? played / total : 0)),
                  ),
                ),
              ),
            ),
          ),
        );
      }),
    ),
  );
}
