// How often engines would play the same move.

import * as Plot from "@observablehq/plot";
import type { Context, Section } from "../context";
import { number, text } from "../data";
import { count, formatShare, formatShort } from "../format";
import { heatFill, heatTextFill } from "../heat";
import { clipped, linked } from "../marks";

export const agreement: Section = {
  id: "agreement",
  title: "Agreement of engines",
  lede:
    "The probability that two engines play the same move on a position that both met. Boards that differ by a " +
    "symmetry are one position. Only the first steps of games count. The probability is uncertain for pairs with " +
    "few common positions.",
  keys: ["engine_agreement"],
  absent: "No two engines of the archive met the same position.",
  content: (context) => [context.result("engine_agreement") && matrix(context)],
};

function matrix(context: Context): HTMLElement {
  return context.chart({
    title: "Probability that two engines play the same move, and the number of common positions",
    isWide: true,
    maxWidth: 760,
    draw(width) {
      const pairs = context.rows("engine_agreement").flatMap((row) => {
        const one = context.series.named(text(row, "engine"));
        const other = context.series.named(text(row, "other_engine"));
        if (one === undefined || other === undefined) return [];
        if (!context.series.isShown(one) || !context.series.isShown(other)) return [];
        const share = number(row, "agreement");
        const positions = number(row, "num_positions");
        return [
          [one, other],
          [other, one],
        ].map(([y, x]) => ({
          x: x?.index,
          y: y?.index,
          share,
          positions,
          title: `${y?.label} and ${x?.label}: ${formatShare(share)}\nover ${count(positions, "position")}`,
          href: context.links.runs(`${y?.condition} OR ${x?.condition}`),
        }));
      });
      if (pairs.length === 0) return null;
      const shown = context.series.shown.filter((series) => pairs.some((pair) => pair.x === series.index));
      const labels = new Map(shown.map((series) => [series.index, series.label]));
      const domain = shown.map((series) => series.index);
      const marginLeft = Math.min(180, Math.max(84, width * 0.22));
      const room = (width - marginLeft) / domain.length;
      const isCrowded = room < 60;
      return {
        width: Math.min(width, marginLeft + 150 * domain.length),
        height: Math.round(50 + Math.max(46, Math.min(90, room * 0.6)) * domain.length),
        marginLeft,
        marginTop: isCrowded ? 84 : 40,
        marginBottom: 6,
        marginRight: 4,
        x: {
          domain,
          axis: "top",
          label: null,
          tickSize: 0,
          tickRotate: isCrowded ? -50 : 0,
          tickFormat: (index: number) => clipped(labels.get(index) ?? "", isCrowded ? 100 : Math.min(room, 150)),
        },
        y: {
          domain,
          label: null,
          tickSize: 0,
          tickFormat: (index: number) => clipped(labels.get(index) ?? "", marginLeft),
        },
        marks: [
          Plot.cell(pairs, { x: "x", y: "y", fill: heatFill, inset: 1, ...linked() }),
          Plot.text(pairs, {
            x: "x",
            y: "y",
            text: (pair: { share: number; positions: number }) =>
              isCrowded
                ? String(Math.round(pair.share * 100))
                : `${formatShare(pair.share)}\nof ${formatShort(pair.positions)}`,
            fill: heatTextFill,
            pointerEvents: "none",
          }),
          Plot.text(domain, {
            x: (index: number) => index,
            y: (index: number) => index,
            text: () => "–",
            fillOpacity: 0.6,
          }),
        ],
      };
    },
  });
}
