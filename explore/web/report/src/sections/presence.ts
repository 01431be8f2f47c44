// Tiles over time, and the phases of the game.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Row } from "../data";
import { groups, number, text } from "../data";
import { el, svg } from "../dom";
import { count, formatNumber, formatPercent, formatShare, formatShort } from "../format";
import { binWidth, clipped, linked } from "../marks";
import { tileChip, tileColor } from "../tiles";

export const presence: Section = {
  id: "tiles",
  title: "Tiles over time",
  lede:
    "The share of steps whose board contains a tile, and the share with this tile as the largest. Only runs that " +
    "are still alive have steps in a bin, so the right end describes few, strong runs.",
  keys: ["tile_presence", "phase_mix"],
  content: (context) => [
    context.result("tile_presence") && contained(context),
    context.result("tile_presence") && largest(context),
    context.result("phase_mix") && phases(context),
  ],
};

/** Smaller tiles are on nearly every board. */
const MIN_TILE = 256;

function tilesOf(rows: readonly Row[], column: string): number[] {
  const present = rows.filter((row) => number(row, column) > 0).map((row) => number(row, "tile"));
  return [...new Set(present)].sort((a, b) => a - b);
}

/** The height of both charts. */
function height(tiles: number): number {
  return Math.max(340, 60 + 42 * tiles);
}

/** Each tile with the colour that charts give it. */
function tileLegend(tiles: readonly number[]): HTMLElement {
  return el(
    "div",
    { class: "legend" },
    ...tiles.map((tile) =>
      el(
        "span",
        { class: "entry" },
        svg(
          "svg",
          { class: "swatch", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
          svg("rect", { width: 12, height: 12, fill: tileColor(tile) }),
        ),
        tileChip(tile),
      ),
    ),
  );
}

function contained(context: Context): HTMLElement {
  const result = context.result("tile_presence");
  const rows = context.rows("tile_presence");
  const size = binWidth(result?.parameters["width"], rows, "first_step");
  const tiles = tilesOf(rows, "num_containing")
    .filter((tile) => tile >= MIN_TILE)
    .reverse();
  const bars = rows
    .filter((row) => tiles.includes(number(row, "tile")))
    .map((row) => {
      const [x, tile, share] = [number(row, "first_step"), number(row, "tile"), number(row, "share_containing")];
      return {
        x1: x,
        x2: x + size,
        share,
        tile,
        title:
          `${tile} is on ${formatShare(share)} of the boards\n` +
          `of steps ${formatNumber(x)} to ${formatNumber(x + size - 1)}`,
        href: context.links.runs(`highest_tile >= ${tile}`, `num_steps > ${x}`),
      };
    });
  return context.chart({
    title: `Share of steps whose board contains a tile, from ${MIN_TILE}`,
    draw: (width) => ({
      width,
      height: height(tiles.length),
      marginLeft: 52,
      marginRight: 44,
      marginBottom: 38,
      x: { label: "step", tickFormat: formatShort },
      y: { tickFormat: formatPercent, domain: [0, 1], ticks: [0, 1], label: null },
      fy: { domain: tiles, label: null, axis: "left", tickFormat: String, tickSize: 0, padding: 0.18 },
      marks: [
        Plot.axisY({
          ticks: [1],
          tickFormat: formatPercent,
          anchor: "right",
          tickSize: 0,
          label: null,
          fillOpacity: 0.8,
        }),
        Plot.rectY(bars, {
          fy: "tile",
          x1: "x1",
          x2: "x2",
          y: "share",
          insetRight: 0.5,
          fill: (bar: { tile: number }) => tileColor(bar.tile),
          ...linked(),
        }),
        Plot.ruleY([0], { strokeOpacity: 0.5 }),
      ],
    }),
  });
}

function largest(context: Context): HTMLElement {
  const result = context.result("tile_presence");
  const rows = context.rows("tile_presence").filter((row) => number(row, "num_largest") > 0);
  const size = binWidth(result?.parameters["width"], context.rows("tile_presence"), "first_step");
  const tiles = tilesOf(rows, "num_largest");
  const bars = [...groups(rows, (row) => number(row, "first_step"))].flatMap(([x, bin]) => {
    let below = 0;
    return [...bin]
      .sort((a, b) => number(a, "tile") - number(b, "tile"))
      .map((row) => {
        const share = number(row, "share_largest");
        const tile = number(row, "tile");
        const y1 = below;
        below += share;
        return {
          x1: x,
          x2: x + size,
          y1,
          y2: below,
          tile,
          title:
            `${tile} is the largest tile in ${formatShare(share)}\n` +
            `of steps ${formatNumber(x)} to ${formatNumber(x + size - 1)}`,
          href: context.links.runs(`highest_tile >= ${tile}`, `num_steps > ${x}`),
        };
      });
  });
  return context.chart({
    title: "Largest tile on the board, as shares of steps",
    key: tileLegend(tiles),
    draw: (width) => ({
      width,
      height: height(tilesOf(rows, "num_containing").filter((tile) => tile >= MIN_TILE).length),
      marginLeft: 52,
      marginRight: 12,
      marginBottom: 38,
      x: { label: "step", tickFormat: formatShort },
      y: { tickFormat: formatPercent, domain: [0, 1], label: "share of steps" },
      marks: [
        Plot.rect(bars, {
          x1: "x1",
          x2: "x2",
          y1: "y1",
          y2: "y2",
          fill: (bar: { tile: number }) => tileColor(bar.tile),
          insetTop: 0.5,
          insetRight: 0.5,
          ...linked(),
        }),
      ],
    }),
  });
}

const PHASES = ["early", "mid", "late"];

function phases(context: Context): HTMLElement {
  const { mid, late } = context.report.phases;
  const names: Record<string, string> = {
    early: `early: below ${mid}`,
    mid: `mid: from ${mid}`,
    late: `late: from ${late}`,
  };
  return context.chart({
    title: "Phases, as shares of each engine's steps",
    isWide: true,
    key: el(
      "div",
      { class: "legend" },
      ...PHASES.map((phase, index) =>
        el(
          "span",
          { class: "entry" },
          svg(
            "svg",
            { class: "swatch", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
            svg("rect", { width: 12, height: 12, fill: `var(--phase-${index})` }),
          ),
          names[phase] ?? phase,
        ),
      ),
    ),
    draw(width) {
      const result = context.result("phase_mix");
      const parts = result === null ? [] : context.series.split(result);
      if (parts.length === 0) return null;
      const bars = parts.flatMap(([series, rows]) => {
        let left = 0;
        return PHASES.flatMap((phase, index) =>
          rows
            .filter((row) => text(row, "phase") === phase)
            .map((row) => {
              const share = number(row, "share");
              const x1 = left;
              left += share;
              return {
                series: series.index,
                x1,
                x2: left,
                share,
                phase: index,
                title: `${series.label}, ${phase}: ${formatShare(share)} (${count(number(row, "num_steps"), "step")})`,
                href: context.links.runs(
                  series.condition,
                  ...(index === 0 ? [] : [`highest_tile >= ${index === 1 ? mid : late}`]),
                ),
              };
            }),
        );
      });
      const marginLeft = Math.min(200, Math.max(90, width * 0.22));
      const labels = new Map(parts.map(([series]) => [series.index, series.label]));
      return {
        width,
        height: 40 + 30 * parts.length,
        marginLeft,
        marginTop: 6,
        marginBottom: 32,
        marginRight: 20,
        x: { domain: [0, 1], tickFormat: formatPercent, label: null, ticks: width / 100 },
        y: {
          domain: parts.map(([series]) => series.index),
          label: null,
          tickSize: 0,
          tickFormat: (index: number) => clipped(labels.get(index) ?? "", marginLeft),
        },
        marks: [
          Plot.barX(bars, {
            x1: "x1",
            x2: "x2",
            y: "series",
            fill: (bar: { phase: number }) => `var(--phase-${bar.phase})`,
            inset: 1,
            ...linked(),
          }),
          Plot.text(
            bars.filter((bar) => bar.share * (width - marginLeft) > 48),
            {
              x: (bar: { x1: number; x2: number }) => (bar.x1 + bar.x2) / 2,
              y: "series",
              text: (bar: { share: number }) => formatShare(bar.share),
              fill: (bar: { phase: number }) => `var(--phase-text-${bar.phase})`,
              pointerEvents: "none",
            },
          ),
        ],
      };
    },
  });
}
