// Lengths of runs, and the first step at which runs have each tile.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import { number } from "../data";
import { count, formatNumber, formatShare, formatShort } from "../format";
import type { Bin } from "../marks";
import { binWidth, histograms, linked, stackedHeight } from "../marks";

export const lengths: Section = {
  id: "lengths",
  title: "Lengths",
  lede:
    "The number of steps of runs, and the first step with each tile. In the second chart, a thick line spans the " +
    "middle half of the runs and a thin line the middle 80 %. The symbol is the median, and each small tick is " +
    "one run.",
  keys: ["length_histogram", "run_lengths", "first_reach", "first_reach_sample"],
  content: (context) => [
    context.result("length_histogram") && histogram(context),
    context.result("first_reach") && firstSteps(context),
  ],
};

/** The largest number of steps that a chart must show, so that both charts have the same axis. */
function maxSteps(context: Context): number {
  const size = binWidth(
    context.result("length_histogram")?.parameters["width"],
    context.rows("length_histogram"),
    "min_steps",
  );
  return Math.max(
    0,
    ...context.rows("length_histogram").map((row) => number(row, "min_steps") + size),
    ...context.rows("run_lengths").map((row) => number(row, "max_steps")),
    ...context.rows("first_reach").map((row) => number(row, "max_step")),
  );
}

function histogram(context: Context): HTMLElement {
  return context.chart({
    title: "Histogram of lengths",
    draw(width) {
      const result = context.result("length_histogram");
      if (result === null) return null;
      const parts = context.series.split(result).map(([series, rows]): [typeof series, Bin[]] => {
        const size = binWidth(result.parameters["width"], rows, "min_steps");
        return [
          series,
          rows.map((row) => {
            const from = number(row, "min_steps");
            const share = number(row, "share");
            return {
              from,
              to: from + size,
              share,
              title:
                `${series.label}: ${count(number(row, "num_runs"), "run")} (${formatShare(share)})\n` +
                `with ${formatNumber(from)} to ${formatNumber(from + size - 1)} steps`,
              href: context.links.runs(series.condition, `num_steps >= ${from} AND num_steps < ${from + size}`),
            };
          }),
        ];
      });
      return parts.length === 0 ? null : histograms(width, parts, { x: "steps", domain: [0, maxSteps(context)] });
    },
  });
}

function firstSteps(context: Context): HTMLElement {
  return context.chart({
    title: "First step with a tile or a larger one",
    legend: () => context.legend("first_reach"),
    draw(width) {
      const result = context.result("first_reach");
      if (result === null) return null;
      const parts = context.series.split(result);
      if (parts.length === 0) return null;
      const boxes = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const tile = number(row, "tile");
          const median = number(row, "median_step");
          return {
            series,
            tile,
            median,
            p10: number(row, "p10_step"),
            p25: number(row, "p25_step"),
            p75: number(row, "p75_step"),
            p90: number(row, "p90_step"),
            title:
              `${series.label}: ${count(number(row, "num_runs"), "run")} reach ${tile}\n` +
              `median step ${formatNumber(median)}, ` +
              `earliest ${formatNumber(number(row, "min_step"))}, latest ${formatNumber(number(row, "max_step"))}`,
            href: context.links.runs(series.condition, `highest_tile >= ${tile}`),
          };
        }),
      );
      const byEngine = parts.some(([series]) => series.condition !== null);
      const dots = context.rows("first_reach_sample").flatMap((row) => {
        const series = byEngine ? context.series.named(row["engine"] as string | null) : parts[0]?.[0];
        if (series === undefined || (byEngine && !context.series.isShown(series))) return [];
        return [{ series, tile: number(row, "tile"), step: number(row, "step_index") }];
      });
      const tiles = [...new Set(boxes.map((box) => box.tile))].sort((a, b) => a - b);
      const channels = {
        fy: "tile",
        y: (item: { series: { index: number } }) => item.series.index,
        stroke: (item: { series: { color: string } }) => item.series.color,
      };
      return {
        width,
        height: Math.round(
          Math.max(stackedHeight(parts.length), 70 + tiles.length * Math.max(30, 8.5 * parts.length + 8)),
        ),
        marginLeft: 58,
        marginRight: 12,
        marginBottom: 38,
        marginTop: 8,
        x: { label: "step", tickFormat: formatShort, domain: [0, maxSteps(context)], grid: true },
        fy: { domain: tiles, label: null, tickFormat: String, axis: "left", padding: 0.12, tickSize: 0 },
        y: { domain: parts.map(([series]) => series.index), axis: null, padding: 0.1 },
        marks: [
          Plot.ruleX([0], { strokeOpacity: 0.3 }),
          Plot.tickX(dots, { ...channels, x: "step", strokeOpacity: 0.5, strokeWidth: 1 }),
          Plot.ruleY(boxes, { ...channels, x1: "p10", x2: "p90", strokeWidth: 1.5 }),
          Plot.ruleY(boxes, { ...channels, x1: "p25", x2: "p75", strokeWidth: 5 }),
          ...parts.map(([series]) =>
            Plot.dot(
              boxes.filter((box) => box.series === series),
              {
                fy: "tile",
                y: () => series.index,
                x: "median",
                r: 3.2,
                symbol: series.symbol,
                fill: "var(--background)",
                stroke: series.color,
                strokeWidth: 1.6,
                ...linked(),
              },
            ),
          ),
        ],
      };
    },
  });
}
