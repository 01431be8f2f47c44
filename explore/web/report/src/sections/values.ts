// Gaps and losses of expected values (EVs), blunders, and the hardest choices.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Row } from "../data";
import { number, text } from "../data";
import { el } from "../dom";
import { count, formatNumber, formatShare, NO_ENGINE } from "../format";
import { intervals, linked, shareAxis } from "../marks";
import { boardView } from "../tiles";

const PHASES = ["early", "mid", "late"];
const MOVES = ["up", "down", "left", "right"];

export const values: Section = {
  id: "values",
  title: "EV gap and loss",
  lede:
    "The gap is the best move's EV minus the second best EV; a gap near 0 is a hard choice. The loss is the best " +
    "EV minus the played move's EV; a loss of 0 is a best move. Both are from 0 to 1: raw EVs are normalized first, so " +
    "that the least EV of a step is 0 and the best is 1.",
  keys: ["ev_gap_histogram", "ev_loss_histogram", "blunder_rate", "blunders", "hard_moves"],
  absent: "No result about EVs: either these queries were left out, or no step of the archive has EVs.",
  content: (context) => [
    context.result("ev_gap_histogram") && histogram(context, "gap"),
    context.result("ev_loss_histogram") && histogram(context, "loss"),
    context.result("blunder_rate") && blunderRate(context),
    context.result("blunders") && gallery(context, "blunders", "Largest losses", "ev_loss"),
    context.result("hard_moves") && gallery(context, "hard_moves", "Hardest choices", "ev_gap"),
  ],
};

/** Histograms of a logarithmic value, one facet per phase. The bin 0 stands left of the axis' range. */
function histogram(context: Context, kind: "gap" | "loss"): HTMLElement {
  const key = `ev_${kind}_histogram`;
  return context.chart({
    title:
      kind === "gap" ? "Gap between the best and the second best EV, by phase" : "EV loss of the played move, by phase",
    legend: () => context.legend(key),
    draw(width) {
      const result = context.result(key);
      const parts = result === null ? [] : context.series.split(result);
      if (parts.length === 0) return null;
      const all = parts.flatMap(([, rows]) => rows);
      const positive = all.map((row) => number(row, `min_${kind}`)).filter((value) => value > 0);
      const least = positive.length > 0 ? Math.min(...positive) : 0.001;
      const most = Math.max(least * 10, ...all.map((row) => number(row, `max_${kind}`)));
      const zero: [number, number] = [least / 4, least / 2];
      const bars = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const [from, to] = [number(row, `min_${kind}`), number(row, `max_${kind}`)];
          const isZero = to <= 0 || from === to;
          const share = number(row, "share");
          const phase = text(row, "phase") ?? "";
          const span = isZero
            ? `a ${kind} of ${formatNumber(from)}`
            : `a ${kind} from ${formatNumber(from)} to ${formatNumber(to)}`;
          return {
            series,
            phase,
            isZero,
            x1: isZero ? zero[0] : from,
            x2: isZero ? zero[1] : to,
            y: share,
            title:
              `${series.label}, ${phase}: ${formatShare(share)} of the steps\n` +
              `(${formatNumber(number(row, "num_steps"))}) have ${span}`,
            href: context.links.runs(series.condition),
          };
        }),
      );
      const present = PHASES.filter((phase) => bars.some((bar) => bar.phase === phase));
      const decades = Array.from({ length: 12 }, (_, index) => 10 ** (index - 8)).filter(
        (tick) => tick >= least && tick <= most,
      );
      const middle = Math.sqrt(zero[0] * zero[1]);
      const stride = Math.ceil((decades.length * 52) / width);
      const shownDecades = decades.filter((tick) => Math.round(Math.log10(tick)) % stride === 0);
      const ticks = bars.some((bar) => bar.isZero) ? [middle, ...shownDecades] : shownDecades;
      return {
        width,
        height: 60 + 110 * present.length,
        marginLeft: 52,
        marginRight: 16,
        marginTop: 22,
        marginBottom: 38,
        x: {
          type: "log",
          domain: [ticks[0] === middle ? zero[0] : least, most],
          label: kind,
          ticks,
          tickFormat: (value: number) =>
            value === middle ? "0" : value < 0.001 ? value.toExponential(0) : formatNumber(value),
        },
        // Nearly all losses are 0, so equal distances would hide all other bars.
        y: {
          ...shareAxis,
          ...(kind === "loss" ? { type: "sqrt" as const, ticks: [0, 0.01, 0.1, 0.5, 1] } : { ticks: 3 }),
          label: kind === "loss" ? "share of steps, on a square root scale" : "share of steps",
        },
        fy: { domain: present, axis: null, padding: 0.25 },
        marks: [
          ...parts.map(([series]) =>
            Plot.rectY(
              bars.filter((bar) => bar.series === series),
              {
                fy: "phase",
                x1: "x1",
                x2: "x2",
                y: "y",
                fill: series.color,
                fillOpacity: parts.length > 2 ? 0.04 : parts.length > 1 ? 0.15 : 0.7,
                ...linked(),
              },
            ),
          ),
          ...parts.map(([series]) =>
            Plot.lineY(outline(bars.filter((bar) => bar.series === series)), {
              fy: "phase",
              z: "run",
              x: "x",
              y: "y",
              stroke: series.color,
              strokeWidth: 1.6,
              strokeDasharray: series.dash,
            }),
          ),
          Plot.text(present, {
            fy: (phase: string) => phase,
            text: (phase: string) => phase,
            frameAnchor: "top-right",
            lineAnchor: "bottom",
            dy: -3,
            fontWeight: 600,
          }),
          Plot.ruleY([0]),
        ],
      };
    },
  });
}

interface Bar {
  phase: string;
  isZero: boolean;
  x1: number;
  x2: number;
  y: number;
}

/** The outline of bars as points of lines; the bar at 0 and each bin after a gap begin a new line. */
function outline(bars: readonly Bar[]): { phase: string; run: string; x: number; y: number }[] {
  const points = [];
  for (const phase of PHASES) {
    let last = Number.NaN;
    let run = 0;
    for (const bar of bars.filter((one) => one.phase === phase).sort((a, b) => a.x1 - b.x1)) {
      const isNext = Math.abs(bar.x1 - last) < 1e-9 * bar.x1;
      const common = { phase, run: `${phase} ${isNext ? run : ++run}` };
      if (!isNext) points.push({ ...common, x: bar.x1, y: 0 });
      points.push({ ...common, x: bar.x1, y: bar.y }, { ...common, x: bar.x2, y: bar.y });
      last = bar.x2;
    }
  }
  return points;
}

function blunderRate(context: Context): HTMLElement {
  const least = context.result("blunder_rate")?.parameters["min_loss"];
  return context.chart({
    isWide: true,
    title: `Blunders: share of moves that lose ${typeof least === "number" ? least : 0.1} or more, with 95 % intervals`,
    legend: () => context.legend("blunder_rate"),
    draw(width) {
      const result = context.result("blunder_rate");
      const parts = result === null ? [] : context.series.split(result);
      const estimates = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const phase = text(row, "phase") ?? "";
          const value = number(row, "share");
          return {
            group: phase,
            series,
            value,
            low: number(row, "low"),
            high: number(row, "high"),
            title:
              `${series.label}, ${phase}: ${formatShare(value)}\n${formatNumber(number(row, "num_blunders"))} of ` +
              `${count(number(row, "num_steps"), "move")} in ${count(number(row, "num_runs"), "run")}`,
            href: context.links.runs(series.condition),
          };
        }),
      );
      if (estimates.length === 0) return null;
      const present = PHASES.filter((phase) => estimates.some((estimate) => estimate.group === phase));
      return intervals(width, estimates, { groups: present, x: "phase", y: "share of moves", height: 240 });
    },
  });
}

/** The number of boards that a gallery shows. */
const BOARDS = 8;

/** Boards with the values of their moves. */
function gallery(context: Context, key: string, title: string, column: string): HTMLElement {
  const rows = context.rows(key).slice(0, BOARDS);
  return el(
    "div",
    { class: "wide" },
    el("h3", {}, title),
    el("p", { class: "hint" }, "▶ is the played move, ★ the best one. The numbers are the EVs of the moves."),
    el("ul", { class: "gallery" }, ...rows.map((row) => card(context, row, column))),
  );
}

/** A sign with a word for screen readers. */
function sign(symbol: string, word: string): HTMLElement {
  return el("span", { role: "img", "aria-label": word, title: word }, symbol);
}

function card(context: Context, row: Row, column: string): HTMLElement {
  const run = number(row, "run_id");
  const step = number(row, "step_index");
  const href = context.links.step(run, step);
  const place = `run ${formatNumber(run)}, step ${formatNumber(step)}`;
  const evs = MOVES.map((move) => number(row, `ev_${move}`));
  const best = Math.max(...evs.filter((value) => Number.isFinite(value)));
  const played = row["move"];
  const lines = MOVES.map((move, index) => {
    const value = evs[index] ?? Number.NaN;
    return el(
      "tr",
      { class: played === index ? "played" : null },
      el("th", { scope: "row" }, move),
      el("td", { class: "number" }, formatNumber(value)),
      el("td", {}, played === index ? sign("▶", "played") : null, value === best ? sign("★", "best") : null),
    );
  });
  return el(
    "li",
    {},
    boardView(text(row, "board") ?? "", number(row, "tile_65536_mask") || 0, "large"),
    el(
      "div",
      {},
      el(
        "p",
        {},
        href === null ? place : el("a", { href }, place),
        el("br"),
        el("bdi", {}, text(row, "engine") ?? NO_ENGINE),
        el("br"),
        `${column === "ev_loss" ? "loss" : "gap"} ${formatNumber(number(row, column))}`,
      ),
      el(
        "table",
        { class: "evs" },
        el("caption", { class: "offscreen" }, `EVs of ${place}`),
        el("tbody", {}, ...lines),
      ),
    ),
  );
}
