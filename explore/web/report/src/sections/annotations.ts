// Predictions of models beside the played moves.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Row } from "../data";
import { groups, number, text } from "../data";
import { count, formatPercent, formatShare } from "../format";
import type { Series } from "../series";
import { style } from "../series";
import { clipped, curve, linked, symbols } from "../marks";

const PHASES = ["early", "mid", "late"];

export const annotations: Section = {
  id: "annotations",
  title: "Annotations",
  lede:
    "The share of steps where a model prefers the played move, and the calibration of its probabilities. On the " +
    "diagonal, moves with a probability of 80 % are played in 80 % of the steps.",
  keys: ["policy_agreement", "calibration"],
  absent: "This archive has no annotations.",
  content: (context) => [
    context.result("policy_agreement") && agreement(context),
    context.result("calibration") && calibration(context),
  ],
};

/** The models of all results, in the order of their names, with the styles of series. */
function models(context: Context): Map<string, Series> {
  const names = [...context.rows("policy_agreement"), ...context.rows("calibration")].map(
    (row) => text(row, "model") ?? "",
  );
  return new Map(
    [...new Set(names)]
      .sort()
      .map((name, index) => [name, { ...style(index), key: name, label: name, condition: null }]),
  );
}

/** The agreement of several rows, weighted by their steps. */
function pooled(rows: readonly Row[]): { steps: number; agreement: number } {
  const steps = rows.reduce((sum, row) => sum + number(row, "num_steps"), 0);
  return {
    steps,
    agreement: rows.reduce((sum, row) => sum + number(row, "num_steps") * number(row, "agreement"), 0) / steps,
  };
}

function agreement(context: Context): HTMLElement {
  const known = models(context);
  return context.chart({
    title: "Share of steps where the model prefers the played move",
    legend: () => [...known.values()],
    draw(width) {
      const points = [
        ...groups(context.rows("policy_agreement"), (row) =>
          JSON.stringify([row["model"], row["engine"], row["phase"]]),
        ),
      ].flatMap(([, rows]) => {
        const row = rows[0] as Row;
        const model = known.get(text(row, "model") ?? "");
        const series = context.series.named(text(row, "engine"));
        if (model === undefined || series === undefined || !context.series.isShown(series)) return [];
        const { steps, agreement: share } = pooled(rows);
        const phase = text(row, "phase") ?? "";
        return [
          {
            model,
            engine: series.index,
            label: series.label,
            phase,
            share,
            title: `${model.label} on ${series.label}, ${phase}: ${formatShare(share)}\nof ${count(steps, "step")}`,
            href: context.links.runs(series.condition),
          },
        ];
      });
      if (points.length === 0) return null;
      const engines = new Map(points.map((point) => [point.engine, point.label]));
      const marginLeft = Math.min(160, Math.max(70, width * 0.2));
      const phases = PHASES.filter((phase) => points.some((point) => point.phase === phase));
      return {
        width,
        height: 70 + phases.length * (engines.size * 26 + 12),
        marginLeft,
        marginRight: 50,
        marginBottom: 38,
        x: { label: "share of steps", tickFormat: formatPercent, grid: true, domain: [0, 1], ticks: width / 100 },
        y: {
          domain: [...engines.keys()].sort((a, b) => a - b),
          label: null,
          tickSize: 0,
          tickFormat: (index: number) => clipped(engines.get(index) ?? "", marginLeft),
        },
        fy: { domain: phases, label: null, padding: 0.1 },
        marks: [
          Plot.frame({ strokeOpacity: 0.15 }),
          ...[...known.values()].map((model) =>
            Plot.dot(
              points.filter((point) => point.model === model),
              { fy: "phase", y: "engine", x: "share", symbol: model.symbol, r: 5, fill: model.color, ...linked() },
            ),
          ),
        ],
      };
    },
  });
}

function calibration(context: Context): HTMLElement | null {
  const known = models(context);
  return context.chart({
    title: "Calibration: probability of the preferred move and how often it was played",
    legend: () => [...known.values()],
    maxWidth: 560,
    draw(width) {
      const parts = [...groups(context.rows("calibration"), (row) => text(row, "model") ?? "")].flatMap(
        ([name, rows]) => {
          const model = known.get(name);
          if (model === undefined) return [];
          const points = rows.map((row) => {
            const [x, y] = [number(row, "mean_prob"), number(row, "agreement")];
            return {
              x,
              y,
              low: Number.NaN,
              high: Number.NaN,
              href: null,
              title:
                `${model.label}: probability ${formatShare(x)}, played ${formatShare(y)}\n` +
                count(number(row, "num_steps"), "step"),
            };
          });
          return [{ model, points }];
        },
      );
      return {
        width,
        height: Math.min(width, 400),
        marginLeft: 52,
        marginRight: 16,
        marginBottom: 38,
        x: { label: "mean probability", tickFormat: formatPercent, domain: [0, 1], grid: true, ticks: 5 },
        y: { label: "share played", tickFormat: formatPercent, domain: [0, 1], grid: true, ticks: 5 },
        marks: [
          Plot.line(
            [
              [0, 0],
              [1, 1],
            ],
            { stroke: "currentColor", strokeOpacity: 0.5, strokeDasharray: "3 3" },
          ),
          ...parts.flatMap(({ model, points }) => curve(model, points, "linear")),
          ...parts.map(({ model, points }) => symbols(model, points)),
        ],
      };
    },
  });
}
