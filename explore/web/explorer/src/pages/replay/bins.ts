// A model's distribution over value bins.

import { svg } from "../../dom";

const WIDTH = 96;
const HEIGHT = 22;

/**
 * The bin of a value; null if it is unknown. The first bin is the value 0 and the last one the value 1. The edges of
 * the bins between are the trainer's choice: n bins have n - 1 edges, from 0 to 1. A value on an edge is in the lower
 * bin.
 */
export function binOf(value: number, numBins: number, edges: number[]): number | null {
  if (value <= 0) return 0;
  if (value >= 1) return numBins - 1;
  if (edges.length !== numBins - 1) return null;
  return 1 + edges.slice(1, -1).filter((edge) => edge < value).length;
}

/** Reads edges: ascending numbers from 0 to 1, separated by commas or spaces. */
export function parseEdges(text: string): number[] | null {
  const edges = text
    .split(/[\s,;]+/)
    .filter((part) => part !== "")
    .map(Number);
  const isAscending = edges.every((edge, index) => index === 0 || edge > (edges[index - 1] ?? 0));
  return isAscending && edges[0] === 0 && edges.at(-1) === 1 ? edges : null;
}

/** Bars that can be changed in place. Their heights are relative to the fullest bin. */
export class BinBars {
  readonly element: SVGElement;
  readonly #bars = svg("path", { class: "bins" });
  readonly #teacher = svg("path", { class: "teacher" });

  constructor() {
    this.element = svg(
      "svg",
      { class: "bin-bars", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" },
      this.#bars,
      this.#teacher,
    );
    this.show(null, null);
  }

  show(bins: number[] | null, teacher: number | null): void {
    const label = bins === null ? "no distribution" : describe(bins, teacher);
    this.element.setAttribute("aria-label", label);
    const width = WIDTH / Math.max(bins?.length ?? 1, 1);
    const largest = Math.max(...(bins ?? []), 1e-9);
    const barWidth = Math.max(width - 0.6, 0.4).toFixed(1);
    const bar = (value: number, bin: number): string => {
      const height = ((value / largest) * (HEIGHT - 3)).toFixed(1);
      return `M${(bin * width).toFixed(1)} ${HEIGHT - 3}v-${height}h${barWidth}V${HEIGHT - 3}z`;
    };
    this.#bars.setAttribute("d", (bins ?? []).map(bar).join(""));
    const x = ((teacher ?? 0) + 0.5) * width;
    const marker = `M${x.toFixed(1)} ${HEIGHT - 4}l3 4h-6z`;
    this.#teacher.setAttribute("d", bins === null || teacher === null ? "" : marker);
  }
}

function describe(bins: number[], teacher: number | null): string {
  const fullest = bins.indexOf(Math.max(...bins));
  const mass = ((bins[fullest] ?? 0) * 100).toFixed(0);
  const text = `fullest bin ${fullest + 1} of ${bins.length}, ${mass} %`;
  return teacher === null ? text : `${text}; the engine's value is in bin ${teacher + 1}`;
}
