// A check of the spawns: nine 2s to one 4, and every empty cell equally likely.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import type { Row } from "../data";
import { groups, number, text } from "../data";
import { el } from "../dom";
import { count, formatNumber, formatShare } from "../format";
import { diverging } from "../heat";
import { clipped, linked } from "../marks";
import { upperTail } from "../statistics";

export const spawns: Section = {
  id: "spawns",
  title: "Spawn check",
  lede:
    "Tests of the spawned tiles. By the rules, 90 % are 2s, 10 % are 4s, and each empty cell is equally likely. A " +
    "fair game has a p-value below 0.001 in one of a thousand checks, so a smaller value points to an error.",
  keys: ["spawn_check"],
  content: (context) =>
    context.result("spawn_check") === null ? [] : [tests(context), ratios(context), ranks(context)],
};

const NAMES: Record<string, string> = { tile: "2s and 4s are 9 : 1", rank: "empty cells are equally likely" };

function tests(context: Context): HTMLElement {
  const body = el("tbody");
  const fill = (): void => {
    const result = context.result("spawn_check");
    const parts = result === null ? [] : context.series.split(result);
    body.replaceChildren(
      ...parts.flatMap(([series, rows]) =>
        [...groups(rows, (row) => text(row, "test"))].map(([test, own]) => {
          const first = own[0] as Row;
          const [chi, degrees] = [number(first, "chi_square"), number(first, "degrees")];
          const p = upperTail(chi, degrees);
          return el(
            "tr",
            {},
            el("th", { scope: "row" }, el("bdi", {}, series.label)),
            el("td", {}, NAMES[test ?? ""] ?? String(test)),
            el("td", { class: "number" }, formatNumber(own.reduce((sum, row) => sum + number(row, "num_spawns"), 0))),
            el("td", { class: "number" }, formatNumber(chi)),
            el("td", { class: "number" }, formatNumber(degrees)),
            el("td", { class: "number" }, p < 1e-4 ? "< 0.0001" : p.toFixed(4)),
            el("td", {}, Number.isNaN(p) ? "–" : p < 0.001 ? "⚠ unlikely" : "✓ plausible"),
          );
        }),
      ),
    );
  };
  fill();
  context.series.onChange(fill);
  const names = ["engine", "rule", "spawns", "χ²", "degrees", "p-value", "result"];
  return el(
    "div",
    { class: "wide scroll", role: "region", "aria-label": "Tests of spawns", tabindex: 0 },
    el(
      "table",
      { class: "tests" },
      el("caption", { class: "offscreen" }, "χ² tests of spawned tiles and cells"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ...names.map((name, index) =>
            el("th", { scope: "col", class: index >= 2 && index <= 5 ? "number" : null }, name),
          ),
        ),
      ),
      body,
    ),
  );
}

function ratios(context: Context): HTMLElement {
  return context.chart({
    title: "Share of 4s, with the range that holds 95 % of fair samples",
    draw(width) {
      const result = context.result("spawn_check");
      const parts = result === null ? [] : context.series.split(result);
      const points = parts.flatMap(([series, rows]) => {
        const own = rows.filter((row) => text(row, "test") === "tile");
        const fours = own.find((row) => number(row, "value") === 4);
        const total = own.reduce((sum, row) => sum + number(row, "num_spawns"), 0);
        if (total === 0) return [];
        const share = (fours === undefined ? 0 : number(fours, "num_spawns")) / total;
        const fair = fours === undefined ? 0.1 : number(fours, "expected") / total;
        const error = 1.96 * Math.sqrt((fair * (1 - fair)) / total);
        return [
          {
            series,
            index: series.index,
            share,
            fair,
            low: Math.max(0, fair - error),
            high: Math.min(1, fair + error),
            title:
              `${series.label}: ${formatShare(share)} of ${count(total, "spawn")} are 4s\n` +
              `expected ${formatShare(fair)}`,
            href: context.links.runs(series.condition),
          },
        ];
      });
      if (points.length === 0) return null;
      const marginLeft = Math.min(180, Math.max(84, width * 0.22));
      const labels = new Map(points.map((point) => [point.index, point.series.label]));
      return {
        width,
        height: 64 + 34 * points.length,
        marginLeft,
        marginRight: 20,
        marginBottom: 38,
        x: {
          label: "share of 4s",
          tickFormat: (value: number) => `${formatNumber(Number((value * 100).toPrecision(5)))} %`,
          grid: true,
          ticks: width / 90,
          nice: true,
        },
        y: {
          domain: points.map((point) => point.index),
          label: null,
          tickSize: 0,
          tickFormat: (index: number) => clipped(labels.get(index) ?? "", marginLeft),
        },
        marks: [
          Plot.barX(points, { y: "index", x1: "low", x2: "high", fill: "currentColor", fillOpacity: 0.15 }),
          Plot.tickX(points, { y: "index", x: "fair", stroke: "currentColor", strokeDasharray: "3 2" }),
          ...points.map((point) =>
            Plot.dot([point], {
              y: "index",
              x: "share",
              symbol: point.series.symbol,
              r: 5.5,
              fill: point.series.color,
              ...linked(),
            }),
          ),
        ],
      };
    },
  });
}

function ranks(context: Context): HTMLElement {
  return context.chart({
    title: "Spawns per empty cell, as a deviation from the expected number in standard errors",
    maxWidth: 620,
    key: el(
      "p",
      { class: "hint" },
      "Each row has boards with this number of empty cells; the columns are these cells in reading order.",
    ),
    draw(width) {
      const result = context.result("spawn_check");
      const parts = result === null ? [] : context.series.split(result);
      const cells = parts.flatMap(([series, rows]) =>
        rows
          .filter((row) => text(row, "test") === "rank")
          .map((row) => {
            const [expected, spawned, empty] = [
              number(row, "expected"),
              number(row, "num_spawns"),
              number(row, "num_empty"),
            ];
            const deviation = (spawned - expected) / Math.sqrt(expected * (1 - 1 / empty));
            return {
              series: series.index,
              rank: number(row, "value") + 1,
              empty,
              deviation: Number.isFinite(deviation) ? deviation : 0,
              title:
                `${series.label}: ${count(empty, "empty cell")}, number ${number(row, "value") + 1}\n` +
                `${count(spawned, "spawn")}, expected ${formatNumber(expected)}`,
              href: context.links.runs(series.condition),
            };
          }),
      );
      if (cells.length === 0) return null;
      const most = Math.max(...cells.map((cell) => cell.empty));
      const empties = Array.from({ length: most }, (_, index) => index + 1).filter((empty) =>
        cells.some((cell) => cell.empty === empty),
      );
      return {
        width,
        height: 50 + parts.length * (empties.length * 20 + 20),
        marginLeft: 44,
        marginRight: 8,
        marginTop: 24,
        marginBottom: 36,
        x: {
          domain: Array.from({ length: most }, (_, index) => index + 1),
          label: "empty cell, in reading order",
          tickSize: 0,
        },
        y: { domain: empties, label: "empty cells", tickSize: 0 },
        fy: { domain: parts.map(([series]) => series.index), axis: null, padding: 0.1 },
        marks: [
          Plot.cell(cells, {
            fy: "series",
            x: "rank",
            y: "empty",
            fill: { value: (cell: { deviation: number }) => diverging(cell.deviation), scale: null },
            inset: 0.5,
            ...linked(),
          }),
          Plot.text(cells, {
            fy: "series",
            x: "rank",
            y: "empty",
            text: (cell: { deviation: number }) => (width < 480 ? "" : signed(cell.deviation)),
            fontSize: 11,
            pointerEvents: "none",
          }),
          Plot.text(
            parts.map(([series]) => series),
            {
              fy: "index",
              text: (series: { label: string }) => clipped(series.label, width),
              frameAnchor: "top-right",
              lineAnchor: "top",
              fontWeight: 600,
            },
          ),
        ],
      };
    },
  });
}

/** A number with one digit after the point, without a negative zero. */
function signed(value: number): string {
  const text = value.toFixed(1).replace("-", "−");
  return text === "−0.0" ? "0.0" : text;
}
