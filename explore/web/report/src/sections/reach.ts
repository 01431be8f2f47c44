// The share of runs that reach each tile, also as a Markdown table.

import type { Context, Section } from "../context";
import { number } from "../data";
import { copyButton, el } from "../dom";
import { count, formatNumber, formatShare } from "../format";
import { reachTable } from "../markdown";
import type { ReachLine } from "../markdown";
import { intervals } from "../marks";
import { tileChip } from "../tiles";

export const reach: Section = {
  id: "tile-reach",
  title: "Tile reach",
  lede:
    "The share of runs that reach each tile, with 95 % Wilson intervals. Intervals are long if there are few " +
    "runs, and engines whose intervals overlap may be equally good.",
  keys: ["tile_reach"],
  content: (context) => (context.result("tile_reach") === null ? [] : [chart(context), markdownTable(context)]),
};

function chart(context: Context): HTMLElement {
  return context.chart({
    title: "Share of runs that reach a tile, with 95 % intervals",
    legend: () => context.legend("tile_reach"),
    isWide: true,
    draw(width) {
      const result = context.result("tile_reach");
      const parts = result === null ? [] : context.series.split(result);
      const estimates = parts.flatMap(([series, rows]) =>
        rows.map((row) => {
          const tile = number(row, "tile");
          const value = number(row, "share");
          const [low, high] = [number(row, "low"), number(row, "high")];
          const interval = Number.isNaN(low) ? "" : ` (${formatShare(low)} to ${formatShare(high)})`;
          return {
            group: String(tile),
            series,
            value,
            low,
            high,
            title:
              `${series.label}: ${formatShare(value)}${interval}\n${formatNumber(number(row, "num_reached"))} of ` +
              `${count(number(row, "num_runs"), "run")} reach ${tile}`,
            href: context.links.runs(series.condition, `highest_tile >= ${tile}`),
          };
        }),
      );
      if (estimates.length === 0) return null;
      const groups = [...new Set(estimates.map((estimate) => Number(estimate.group)))].sort((a, b) => a - b);
      return intervals(width, estimates, { groups: groups.map(String), x: "tile", y: "share of runs", bars: true });
    },
  });
}

/** The tiles that README tables of this field have. Larger and smaller ones are shown only if the data has them. */
const TILES = [65536, 32768, 16384, 8192, 4096, 2048];

function lines(context: Context): ReachLine[] {
  const result = context.result("tile_reach");
  if (result === null) return [];
  return context.series.split(result).map(([series, rows]) => ({
    engine: series.label,
    runs: Math.max(...rows.map((row) => number(row, "num_runs"))),
    shares: shares(rows.map((row) => [number(row, "tile"), number(row, "share")])),
  }));
}

/** The share of runs that reach each tile. The share is 0 for tiles above the largest one of the result. */
function shares(known: [number, number][]): Map<number, number> {
  const largest = Math.max(...known.map(([tile]) => tile));
  return new Map([...TILES.filter((tile) => tile > largest).map((tile): [number, number] => [tile, 0]), ...known]);
}

function markdownTable(context: Context): HTMLElement {
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, "engine"),
    el("th", { scope: "col", class: "number" }, "games"),
    ...TILES.map((tile) => el("th", { scope: "col", class: "number" }, tileChip(tile))),
  );
  const body = el("tbody");
  const text = el("pre", { class: "markdown", tabindex: 0, "aria-label": "Tile reach as Markdown" });
  const fill = (): void => {
    const content = lines(context);
    text.textContent = reachTable(content, TILES);
    body.replaceChildren(
      ...content.map((line) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, el("bdi", {}, line.engine)),
          el("td", { class: "number" }, formatNumber(line.runs)),
          ...TILES.map((tile) => {
            const share = line.shares.get(tile);
            return el("td", { class: "number" }, share === undefined ? "–" : formatShare(share));
          }),
        ),
      ),
    );
  };
  fill();
  context.series.onChange(fill);
  return el(
    "div",
    { class: "wide reach" },
    el(
      "div",
      { class: "scroll", role: "region", "aria-label": "Tile reach", tabindex: 0 },
      el(
        "table",
        {},
        el("caption", { class: "offscreen" }, "Share of runs that reach each tile"),
        el("thead", {}, head),
        body,
      ),
    ),
    el("details", {}, el("summary", {}, "The table as Markdown"), text),
    el(
      "p",
      { class: "tools" },
      copyButton("Copy as Markdown", null, () => reachTable(lines(context), TILES)),
    ),
  );
}
