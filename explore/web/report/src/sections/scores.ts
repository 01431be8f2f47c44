// Scores: histograms and empirical distributions with bands.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import { number } from "../data";
import { count, formatNumber, formatShare } from "../format";
import type { Bin, Point } from "../marks";
import { binWidth, curve, histograms, pointerTip, scoreAxis, shareAxis, some, stackedHeight, symbols } from "../marks";

export const scores: Section = {
  id: "scores",
  title: "Scores",
  lede:
    "The distribution of final scores. A curve shows the share of runs with at most a given score, so a curve " +
    "further to the right is better. A band covers its whole curve with 95 % confidence; engines whose bands are " +
    "apart differ.",
  keys: ["score_histogram", "score_ecdf"],
  content: (context) => [
    context.result("score_histogram") && histogram(context),
    context.result("score_ecdf") && ecdf(context),
  ],
};

function histogram(context: Context): HTMLElement {
  return context.chart({
    title: "Histogram of scores",
    log: isSpread(context),
    draw(width, isLog) {
      const result = context.result("score_histogram");
      if (result === null) return null;
      const parts = context.series.split(result).map(([series, rows]): [typeof series, Bin[]] => {
        const size = binWidth(result.parameters["width"], rows, "min_score");
        return [
          series,
          rows.map((row) => {
            const from = number(row, "min_score");
            const share = number(row, "share");
            return {
              from,
              to: from + size,
              share,
              title:
                `${series.label}: ${count(number(row, "num_runs"), "run")} (${formatShare(share)})\n` +
                `with a score from ${formatNumber(from)} to ${formatNumber(from + size - 1)}`,
              href: context.links.runs(series.condition, `max_score >= ${from} AND max_score < ${from + size}`),
            };
          }),
        ];
      });
      return parts.length === 0 ? null : histograms(width, parts, { x: "score", isLog });
    },
  });
}

/** Whether the scores span more than a factor of ten: the best score, and the median of an engine. */
export function isSpread(context: Context): boolean {
  const rows = context.rows("engine_leaderboard");
  const medians = rows.map((row) => number(row, "median_score")).filter((score) => score > 0);
  return Math.max(...rows.map((row) => number(row, "best_score"))) > 10 * Math.min(...medians);
}

function ecdf(context: Context): HTMLElement {
  return context.chart({
    title: "Share of runs with at most this score, with a 95 % band",
    log: isSpread(context),
    legend: () => context.legend("score_ecdf"),
    draw(width, isLog) {
      const result = context.result("score_ecdf");
      if (result === null) return null;
      const parts = context.series.split(result).map(([series, rows]): [typeof series, Point[]] => [
        series,
        rows.map((row) => {
          const x = number(row, "score");
          const y = number(row, "share");
          return {
            x,
            y,
            low: number(row, "low"),
            high: number(row, "high"),
            title:
              `${series.label}: ${formatShare(y)} of ${count(number(row, "num_runs"), "run")}\n` +
              `score ${formatNumber(x)} or less`,
            href: context.links.runs(series.condition, `max_score <= ${x}`),
          };
        }),
      ]);
      if (parts.length === 0) return null;
      return {
        width,
        height: stackedHeight(parts.length),
        marginLeft: 52,
        marginRight: 16,
        marginBottom: 38,
        x: scoreAxis(
          width,
          isLog,
          parts.flatMap(([, points]) => points.map((point) => point.x)),
        ),
        y: { ...shareAxis, domain: [0, 1], label: "share of runs" },
        marks: [
          ...parts.flatMap(([series, points]) => curve(series, points, "step-after", parts.length > 3 ? 0.1 : 0.16)),
          ...parts.map(([series, points]) => symbols(series, some(points, 6))),
          pointerTip(parts.flatMap(([, points]) => points)),
          Plot.ruleY([0]),
        ],
      };
    },
  });
}
