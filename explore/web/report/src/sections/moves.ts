// The mix of moves, and the cells where engines keep their largest tile.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import { number, text } from "../data";
import { el, svg } from "../dom";
import { count, formatNumber, formatPercent, formatShare } from "../format";
import { clipped, linked } from "../marks";
import { heatFill, heatTextFill } from "../heat";

const PHASES = ["early", "mid", "late"];
const MOVES = ["up", "down", "left", "right"];
const ARROWS = ["↑", "↓", "←", "→"];

export const moves: Section = {
  id: "moves",
  title: "Moves and corners",
  lede:
    "The share of each direction, and the cell that holds the largest tile. The canonical board is the smallest " +
    "of the eight symmetric boards, and its top left corner is the smallest corner.",
  keys: ["move_mix", "corner_occupancy"],
  content: (context) => [
    context.result("move_mix") && mix(context, "played", "Moves on the stored board"),
    context.result("move_mix") && mix(context, "canonical", "Moves on the canonical board"),
    context.result("corner_occupancy") && corners(context, "largest", "Cell of the largest tile on the stored board"),
    context.result("corner_occupancy") &&
      corners(context, "canonical", "Cell of the largest tile on the canonical board"),
  ],
};

/** The name, the arrow and the colour of each move. */
export function moveLegend(): HTMLElement {
  return el(
    "div",
    { class: "legend" },
    ...MOVES.map((move, index) =>
      el(
        "span",
        { class: "entry" },
        svg(
          "svg",
          { class: "swatch", width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" },
          svg("rect", { width: 14, height: 14, fill: `var(--move-${index})` }),
        ),
        `${ARROWS[index] ?? ""} ${move}`,
      ),
    ),
  );
}

/** Shares of the four moves as bars, one facet per engine and one bar per phase. */
function mix(context: Context, kind: "played" | "canonical", title: string): HTMLElement {
  return context.chart({
    title,
    key: moveLegend(),
    draw(width) {
      const result = context.result("move_mix");
      const parts = result === null ? [] : context.series.split(result);
      if (parts.length === 0) return null;
      const bars = parts.flatMap(([series, rows]) =>
        PHASES.flatMap((phase) => {
          let left = 0;
          return rows
            .filter((row) => text(row, "phase") === phase)
            .map((row) => {
              const share = number(row, `share_${kind}`) || 0;
              const move = number(row, "move");
              const x1 = left;
              left += share;
              return {
                series: series.index,
                phase,
                move,
                share,
                x1,
                x2: left,
                title:
                  `${series.label}, ${phase}: ${formatShare(share)} ${MOVES[move] ?? "?"}\n` +
                  count(number(row, `num_${kind}`), "step"),
                href: context.links.runs(series.condition),
              };
            });
        }),
      );
      return {
        width,
        height: 44 + parts.length * 92,
        marginLeft: 48,
        marginRight: 20,
        marginTop: 22,
        marginBottom: 28,
        x: { domain: [0, 1], label: null, tickFormat: formatPercent, ticks: 5 },
        y: { domain: PHASES.filter((phase) => bars.some((bar) => bar.phase === phase)), label: null, tickSize: 0 },
        fy: { domain: parts.map(([series]) => series.index), axis: null, padding: 0.25 },
        marks: [
          Plot.barX(bars, {
            fy: "series",
            y: "phase",
            x1: "x1",
            x2: "x2",
            fill: (bar: { move: number }) => `var(--move-${bar.move})`,
            inset: 0.5,
            ...linked(),
          }),
          Plot.text(
            bars.filter((bar) => bar.share * width > 40),
            {
              fy: "series",
              y: "phase",
              x: (bar: { x1: number; x2: number }) => (bar.x1 + bar.x2) / 2,
              text: (bar: { move: number; share: number }) =>
                `${ARROWS[bar.move] ?? ""} ${Math.round(bar.share * 100)}`,
              fill: "var(--move-text)",
              fontWeight: 600,
              pointerEvents: "none",
            },
          ),
          Plot.text(
            parts.map(([series]) => series),
            {
              fy: "index",
              text: (series: { label: string }) => clipped(series.label, width),
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

/** A 4 × 4 heat map per engine and phase. */
function corners(context: Context, kind: "largest" | "canonical", title: string): HTMLElement {
  return context.chart({
    title: `${title}, in percent of the phase's steps`,
    maxWidth: 620,
    draw(width) {
      const result = context.result("corner_occupancy");
      const parts = result === null ? [] : context.series.split(result);
      if (parts.length === 0) return null;
      const cells = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const cell = number(row, "cell");
          const share = number(row, `share_${kind}`) || 0;
          const phase = text(row, "phase") ?? "";
          return {
            series: series.index,
            phase,
            x: cell % 4,
            y: Math.floor(cell / 4),
            share,
            title:
              `${series.label}, ${phase}: ${formatShare(share)}\n(${formatNumber(number(row, `num_${kind}`))} of ` +
              `${count(number(row, "num_steps"), "step")}) ` +
              `in row ${Math.floor(cell / 4) + 1}, column ${(cell % 4) + 1}`,
            href: context.links.runs(series.condition),
          };
        }),
      );
      const present = PHASES.filter((phase) => cells.some((cell) => cell.phase === phase));
      const side = (width - 8) / present.length;
      return {
        width,
        height: Math.round(40 + parts.length * (Math.min(side, 190) * 0.86 + 18)),
        marginLeft: 4,
        marginRight: 4,
        marginTop: 48,
        marginBottom: 4,
        fx: { domain: present, axis: null, padding: 0.08 },
        fy: { domain: parts.map(([series]) => series.index), axis: null, padding: 0.12 },
        x: { domain: [0, 1, 2, 3], axis: null, padding: 0.05 },
        y: { domain: [0, 1, 2, 3], axis: null, padding: 0.05 },
        marks: [
          Plot.axisFx({ anchor: "top", label: null, tickSize: 0, dy: -18, fontWeight: 600 }),
          Plot.cell(cells, { fx: "phase", fy: "series", x: "x", y: "y", fill: heatFill, rx: 3, ...linked() }),
          Plot.text(cells, {
            fx: "phase",
            fy: "series",
            x: "x",
            y: "y",
            text: (cell: { share: number }) =>
              cell.share > 0 && cell.share < 0.01 ? "<1" : String(Math.round(cell.share * 100)),
            fill: heatTextFill,
            pointerEvents: "none",
          }),
          Plot.text(
            parts.map(([series]) => ({ series, phase: present[0] })),
            {
              fx: "phase",
              fy: (part: { series: { index: number } }) => part.series.index,
              text: (part: { series: { label: string } }) => clipped(part.series.label, width),
              frameAnchor: "top-left",
              lineAnchor: "bottom",
              textAnchor: "start",
              dy: -3,
            },
          ),
        ],
      };
    },
  });
}
