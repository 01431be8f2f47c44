// Survival: runs still alive at each step, and runs that go on from each tile to the next.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import { number } from "../data";
import { count, formatNumber, formatPercent, formatShare, formatShort } from "../format";
import type { Bin, Point } from "../marks";
import {
  binWidth,
  curve,
  histograms,
  intervals,
  linked,
  pointerTip,
  shareAxis,
  some,
  stackedHeight,
  symbols,
} from "../marks";
import type { Series } from "../series";

export const survival: Section = {
  id: "survival",
  title: "Survival",
  lede:
    "Survival is the share of games that last to a step, by Kaplan and Meier, with 95 % intervals at each step. " +
    "The hazard is the probability that a game ends before the next bin or the next tile. Runs that were stopped " +
    "count as censored.",
  keys: ["survivorship", "tile_survival"],
  content: (context) => [
    context.result("survivorship") && byStep(context),
    context.result("survivorship") && hazardByStep(context),
    context.result("tile_survival") && byTile(context),
    context.result("tile_survival") && hazardByTile(context),
  ],
};

interface Step extends Point {
  hazard: number;
  ended: number;
}

/** The rows of each series. A bin in which no run ends has no row; its hazard is 0. */
function steps(context: Context): { width: number; parts: [Series, Step[]][] } {
  const result = context.result("survivorship");
  if (result === null) return { width: 1, parts: [] };
  const width = binWidth(result.parameters["width"], context.rows("survivorship"), "first_step");
  const hasEstimates = result.columns.includes("survival");
  const parts = context.series.split(result).map(([series, rows]): [Series, Step[]] => {
    const points = rows.map((row): Step => {
      const x = number(row, "first_step");
      const y = number(row, hasEstimates ? "survival" : "share");
      const ended = number(row, "num_ended");
      const alive = number(row, "num_alive");
      const hazard = hasEstimates ? number(row, "hazard") : ended / alive;
      const end = x + width;
      return {
        x,
        y,
        low: number(row, "low"),
        high: number(row, "high"),
        hazard,
        ended,
        title:
          `${series.label}: ${formatShare(y)} last to step ${formatNumber(x)}\n${count(alive, "run")} alive, ` +
          `${formatNumber(ended)} end before step ${formatNumber(end)}`,
        href: context.links.runs(series.condition, `num_steps > ${x} AND num_steps <= ${end}`),
      };
    });
    return [series, points];
  });
  return { width, parts };
}

/** The points of a curve: it falls within each bin that has a row, and is level in the bins without one. */
function withCorners(points: readonly Step[], width: number): Step[] {
  const first = points[0];
  if (first === undefined) return [];
  const corners: Step[] = first.x > 0 ? [{ ...first, x: 0 }] : [];
  points.forEach((point, index) => {
    const next = points[index + 1];
    corners.push(point);
    if (next === undefined) {
      const rest = Number.isFinite(point.hazard) ? point.y * (1 - point.hazard) : point.y;
      corners.push({ ...point, x: point.x + width, y: rest, low: Number.NaN, high: Number.NaN });
    } else if (next.x > point.x + width) {
      corners.push({ ...next, x: point.x + width });
    }
  });
  return corners;
}

function byStep(context: Context): HTMLElement {
  return context.chart({
    title: "Survival by step",
    legend: () => context.legend("survivorship"),
    draw(width) {
      const { width: size, parts } = steps(context);
      if (parts.length === 0) return null;
      return {
        width,
        height: stackedHeight(parts.length),
        marginLeft: 52,
        marginRight: 16,
        marginBottom: 38,
        x: { label: "step", tickFormat: formatShort, nice: true, zero: true },
        y: { ...shareAxis, domain: [0, 1], label: "share of games" },
        marks: [
          ...parts.flatMap(([series, points]) =>
            curve(series, withCorners(points, size), "linear", parts.length > 3 ? 0.1 : 0.16),
          ),
          ...parts.map(([series, points]) => symbols(series, some(points, 12))),
          pointerTip(parts.flatMap(([, points]) => points)),
          Plot.ruleY([0]),
        ],
      };
    },
  });
}

function hazardByStep(context: Context): HTMLElement {
  return context.chart({
    title: "Hazard by step: probability that a game ends in the bin",
    draw(width) {
      const { width: size, parts } = steps(context);
      if (parts.length === 0) return null;
      const bars = parts.map(([series, points]): [Series, Bin[]] => [
        series,
        points.map((point) => ({
          from: point.x,
          to: point.x + size,
          share: point.hazard,
          title:
            `${series.label}: ${formatShare(point.hazard)} of the games alive at step ${formatNumber(point.x)}\n` +
            `end before step ${formatNumber(point.x + size)}`,
          href: point.href,
        })),
      ]);
      const most = Math.max(...bars.flatMap(([, bins]) => bins.map((bin) => bin.to)));
      return histograms(width, bars, { x: "step", y: "hazard", domain: [0, most] });
    },
  });
}

function byTile(context: Context): HTMLElement {
  return context.chart({
    title: "Of the runs that reach a tile, the share that reach the next one, with 95 % intervals",
    legend: () => context.legend("tile_survival"),
    draw(width) {
      const estimates = tileEstimates(context);
      if (estimates.length === 0) return null;
      const groups = [...new Set(estimates.map((estimate) => Number(estimate.group)))].sort((a, b) => a - b);
      return intervals(width, estimates, { groups: groups.map(String), x: "tile", y: "share that go on" });
    },
  });
}

function tileEstimates(context: Context) {
  const result = context.result("tile_survival");
  const parts = result === null ? [] : context.series.split(result);
  return parts.flatMap(([series, rows]) =>
    rows.map((row) => {
      const tile = number(row, "tile");
      const value = number(row, "share");
      return {
        group: String(tile),
        series,
        value,
        low: number(row, "low"),
        high: number(row, "high"),
        title:
          `${series.label}: ${formatShare(value)}\n${formatNumber(number(row, "num_next"))} of ` +
          `${count(number(row, "num_reached"), "run")} go on from ${tile} to ${2 * tile}`,
        href: context.links.runs(series.condition, `highest_tile = ${tile}`),
      };
    }),
  );
}

function hazardByTile(context: Context): HTMLElement {
  return context.chart({
    title: "Hazard by tile: share of these runs that end before the next tile",
    legend: () => context.legend("tile_survival"),
    draw(width) {
      const estimates = tileEstimates(context).map((estimate) => ({
        ...estimate,
        hazard: 1 - estimate.value,
        tile: estimate.group,
        title:
          `${estimate.series.label}: ${formatShare(1 - estimate.value)} of the runs with ${estimate.group}\n` +
          `end before ${2 * Number(estimate.group)}`,
      }));
      if (estimates.length === 0) return null;
      const series = [...new Set(estimates.map((estimate) => estimate.series))];
      const tiles = [...new Set(estimates.map((estimate) => Number(estimate.tile)))].sort((a, b) => a - b).map(String);
      return {
        width,
        height: 300,
        marginLeft: 52,
        marginRight: 16,
        marginBottom: 40,
        x: { type: "point", domain: tiles, label: "tile" },
        y: { grid: true, tickFormat: formatPercent, domain: [0, 1], label: "hazard" },
        marks: [
          ...series.flatMap((one) => {
            const points = estimates.filter((estimate) => estimate.series === one);
            return [
              Plot.lineY(points, {
                x: "tile",
                y: "hazard",
                stroke: one.color,
                strokeWidth: 1.8,
                strokeDasharray: one.dash,
              }),
              Plot.dot(points, {
                x: "tile",
                y: "hazard",
                symbol: one.symbol,
                r: 4.5,
                fill: one.color,
                stroke: "var(--background)",
                ...linked(),
              }),
            ];
          }),
          Plot.ruleY([0]),
        ],
      };
    },
  });
}
