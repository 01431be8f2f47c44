// Marks that several sections share.

import * as Plot from "@observablehq/plot";
import type { Row } from "./data";
import { number } from "./data";
import { formatPercent, formatShort, shorten } from "./format";
import type { Series } from "./series";

/** The channels of a mark with a text and a link. */
export interface Mark {
  title: string;
  href: string | null;
}

/** Channels for marks with `title` and `href`. Marks without a link are not wrapped into one. */
export function linked(): { title: string; href: (mark: Mark) => string | null; ariaLabel: string } {
  return { title: "title", href: (mark: Mark) => mark.href, ariaLabel: "title" };
}

export const shareAxis = { tickFormat: formatPercent, grid: true, nice: true } as const;
export const countAxis = { tickFormat: formatShort } as const;

/** An axis of scores. A logarithmic one begins at the least positive score. */
export function scoreAxis(width: number, isLog: boolean, scores: readonly number[]): Plot.ScaleOptions {
  const common = { label: "score", tickFormat: formatShort, ticks: Math.max(3, width / 110), grid: true };
  const positive = scores.filter((score) => score > 0);
  if (!isLog || positive.length === 0) return { ...common, nice: true, zero: true };
  return { ...common, type: "log", domain: [Math.min(...positive) / 1.2, Math.max(...positive) * 1.2], clamp: true };
}

/** One bar of a histogram, `from` ≤ value < `to`. */
export interface Bin extends Mark {
  from: number;
  to: number;
  share: number;
}

/** The height of a chart with one facet per series. A chart beside it has the same height. */
export function stackedHeight(count: number): number {
  return Math.max(330, 60 + count * 70);
}

/** Histograms below each other, one per series, with a common axis. */
export function histograms(
  width: number,
  parts: readonly [Series, Bin[]][],
  options: { x: string; y?: string; domain?: [number, number] | undefined; isLog?: boolean },
): Plot.PlotOptions {
  // A logarithmic axis has no 0: there, a bin from 0 begins at half its end.
  const start = (bin: Bin): number => (options.isLog === true && bin.from === 0 ? bin.to / 2 : bin.from);
  return {
    width,
    height: stackedHeight(parts.length),
    marginLeft: 52,
    marginBottom: 38,
    marginTop: 22,
    marginRight: 12,
    x: {
      ...countAxis,
      label: options.x,
      domain: options.domain,
      nice: options.domain === undefined,
      ...(options.isLog === true ? { type: "log" as const, ticks: Math.max(3, width / 110) } : {}),
    },
    y: { ...shareAxis, label: options.y ?? "share of runs", ticks: 3, labelAnchor: "top" },
    fy: { axis: null, padding: parts.length > 1 ? 0.28 : 0, domain: parts.map(([series]) => series.index) },
    marks: [
      ...parts.map(([series, bins]) =>
        Plot.rectY(bins, {
          fy: () => series.index,
          x1: start,
          x2: "to",
          y: "share",
          fill: series.color,
          insetLeft: 0.5,
          insetRight: 0.5,
          ...linked(),
        }),
      ),
      facetLabels(
        parts.map(([series]) => series),
        width,
      ),
      Plot.ruleY([0]),
    ],
  };
}

/** The name of each facet's series, above the facet. */
export function facetLabels(series: readonly Series[], width: number): Plot.Markish {
  return Plot.text(series, {
    fy: "index",
    text: (one: Series) => (series.length > 1 || one.condition !== null ? clipped(one.label, width) : ""),
    frameAnchor: "top-right",
    textAnchor: "end",
    lineAnchor: "bottom",
    dy: -3,
    fontWeight: 600,
    fill: "currentColor",
  });
}

/** A name that fits into a width in pixels; a long one loses its middle, because names often differ at the end. */
export function clipped(name: string, width: number): string {
  return shorten(name, Math.max(5, Math.floor(width / 6.6)));
}

/** A point of a curve with its confidence interval. */
export interface Point extends Mark {
  x: number;
  y: number;
  low: number;
  high: number;
}

/** A curve with its confidence band. */
export function curve(
  series: Series,
  points: readonly Point[],
  shape: "step-after" | "linear",
  bandOpacity = 0.16,
): Plot.Markish[] {
  const hasBand = points.some((point) => Number.isFinite(point.low) && Number.isFinite(point.high));
  return [
    hasBand
      ? Plot.areaY(points, {
          x: "x",
          y1: "low",
          y2: "high",
          curve: shape,
          fill: series.color,
          fillOpacity: bandOpacity,
        })
      : null,
    Plot.lineY(points, {
      x: "x",
      y: "y",
      curve: shape,
      stroke: series.color,
      strokeWidth: 1.8,
      strokeDasharray: series.dash,
    }),
  ];
}

/** Symbols at some points of a curve, which carry its links and distinguish it without colour. */
export function symbols(series: Series, points: readonly Point[]): Plot.Markish {
  return Plot.dot(points, {
    x: "x",
    y: "y",
    symbol: series.symbol,
    r: 4,
    fill: series.color,
    stroke: "var(--background)",
    strokeWidth: 0.8,
    ...linked(),
  });
}

/** The text of the point that is nearest to the pointer. */
export function pointerTip(points: readonly Point[]): Plot.Markish {
  const nearest = Plot.pointer({ x: "x", y: "y", title: "title", fill: "var(--background)", maxRadius: 60 });
  return Plot.tip(points, nearest);
}

/** A few points of a curve, at even distances along it. */
export function some(points: readonly Point[], wanted: number): Point[] {
  if (points.length <= wanted) return [...points];
  const step = (points.length - 1) / (wanted - 1);
  return Array.from({ length: wanted }, (_, index) => points[Math.round(index * step)]).filter((p) => p !== undefined);
}

/** A value with its confidence interval, for a group (such as a tile) and a series. */
export interface Estimate extends Mark {
  group: string;
  series: Series;
  value: number;
  low: number;
  high: number;
}

/** Dots with intervals: one column per group, in it one dot per series. */
export function intervals(
  width: number,
  estimates: readonly Estimate[],
  options: { groups: string[]; y: string; x: string; bars?: boolean; height?: number },
): Plot.PlotOptions {
  const isCrowded = width / options.groups.length < 48;
  const present = [...new Set(estimates.map((estimate) => estimate.series))].sort((a, b) => a.index - b.index);
  return {
    width,
    height: options.height ?? 300,
    marginLeft: 56,
    marginRight: 8,
    marginBottom: isCrowded ? 52 : 40,
    fx: {
      domain: options.groups,
      label: options.x,
      padding: 0.12,
      labelAnchor: "center",
      axis: "bottom",
      tickRotate: isCrowded ? -35 : 0,
    },
    x: { domain: present.map((series) => series.index), axis: null, padding: 0.15 },
    y: { ...shareAxis, label: options.y, zero: true },
    marks: [
      options.bars === true
        ? Plot.barY(estimates, {
            fx: "group",
            x: (estimate: Estimate) => estimate.series.index,
            y: "value",
            fill: (estimate: Estimate) => estimate.series.color,
            fillOpacity: 0.45,
            ...linked(),
          })
        : null,
      Plot.ruleX(estimates, {
        fx: "group",
        x: (estimate: Estimate) => estimate.series.index,
        y1: "low",
        y2: "high",
        stroke: (estimate: Estimate) => estimate.series.color,
        strokeWidth: 2,
      }),
      ...present.map((series) =>
        Plot.dot(
          estimates.filter((estimate) => estimate.series === series),
          {
            fx: "group",
            x: (estimate: Estimate) => estimate.series.index,
            y: "value",
            symbol: series.symbol,
            r: isCrowded && present.length > 3 ? 3 : 4.5,
            fill: series.color,
            stroke: "var(--background)",
            strokeWidth: 0.8,
            ...linked(),
          },
        ),
      ),
      Plot.ruleY([0]),
    ],
  };
}

/** The width of a result's bins: its parameter, or the smallest distance of its rows. */
export function binWidth(parameter: unknown, rows: readonly Row[], column: string): number {
  if (typeof parameter === "number" && parameter > 0) return parameter;
  const starts = [...new Set(rows.map((row) => number(row, column)))].sort((a, b) => a - b);
  const gaps = starts.slice(1).map((start, index) => start - (starts[index] ?? 0));
  return gaps.length === 0 ? 1 : Math.min(...gaps);
}
