// The marks and axes of a chart.

import * as Plot from "@observablehq/plot";
import { count, formatNumber, formatShort, shorten } from "../../format";
import type { ChartKind } from "./chartkind";
import { compareColours } from "./colours";
import type { ColumnInfo } from "./columns";
import { isNumeric } from "./columns";

const MAX_BARS = 200;
const STYLE = { fontSize: "0.8rem", overflow: "visible" };
const ROWS = "number of rows";

/** The values of a row that the chart shows. */
export interface Datum {
  x: number | Date | string;
  y: number;
  colour: string | number;
}

/** The content of a chart. */
export interface ChartSpec {
  kind: ChartKind;
  x: ColumnInfo;
  /** null = the number of rows. */
  y: ColumnInfo | null;
  colour: ColumnInfo | null;
  data: Datum[];
  width: number;
  isLog: boolean;
  color: Plot.ScaleOptions | undefined;
  /** Whether x is a tile. */
  hasTiles: boolean;
}

/** The options of one chart, and a note on omitted bars. */
export function chartOptions(spec: ChartSpec): { options: Plot.PlotOptions; note: string } {
  const marks = new Marks(spec);
  return { options: marks.options(), note: marks.note };
}

class Marks {
  note = "";
  readonly #spec: ChartSpec;
  readonly #yName: string;

  constructor(spec: ChartSpec) {
    this.#spec = spec;
    this.#yName = spec.kind === "histogram" ? ROWS : (spec.y?.name ?? ROWS);
  }

  options(): Plot.PlotOptions {
    const isText = this.#spec.hasTiles || (!isNumeric(this.#spec.x) && this.#spec.x.kind !== "time");
    const base = {
      width: this.#spec.width,
      height: this.#height,
      className: "chart-svg",
      style: STYLE,
      color: this.#spec.color,
    };
    if (this.#spec.kind === "bar" && isText) return { ...base, ...this.#sideways() };
    const yAxis: Plot.ScaleOptions = {
      label: this.#yName,
      grid: true,
      tickFormat: formatShort,
      nice: true,
      ...(this.#spec.isLog ? { type: "log" as const, clamp: true } : {}),
    };
    const isDoubling = this.#spec.hasTiles && (this.#spec.kind === "line" || this.#spec.kind === "dot");
    const xAxis: Plot.ScaleOptions = {
      label: this.#spec.x.name,
      ...(isNumeric(this.#spec.x) ? { tickFormat: this.#spec.hasTiles ? String : formatShort } : {}),
      ...(isDoubling ? { type: "log" as const, base: 2 } : {}),
    };
    return { ...base, marginTop: 30, marginLeft: 60, marginBottom: 40, x: xAxis, y: yAxis, marks: this.#marks(isText) };
  }

  /** The text beside the pointer. */
  readonly #describe = ({ x, y, colour }: Datum): string => {
    const { x: xColumn, colour: colourColumn } = this.#spec;
    const lines = [`${xColumn.name}: ${asText(x)}`, `${this.#yName}: ${asText(y)}`];
    if (colourColumn !== null && colourColumn !== xColumn) lines.push(`${colourColumn.name}: ${asText(colour)}`);
    return lines.join("\n");
  };

  get #height(): number {
    return Math.round(Math.max(260, Math.min(this.#spec.width * 0.5, 560)));
  }

  /** Without a colour column, everything has the first colour. */
  get #paint(): string {
    return this.#spec.colour === null ? "var(--series-0)" : "colour";
  }

  /** The lower end of bars: 0, or the least value on a logarithmic axis. */
  get #floor(): number {
    if (!this.#spec.isLog) return 0;
    const least = this.#spec.data.reduce((low, { y }) => (y > 0 && y < low ? y : low), Number.POSITIVE_INFINITY);
    return Number.isFinite(least) ? least / 2 : 1;
  }

  #marks(isText: boolean): Plot.Markish[] {
    const data = this.#spec.isLog ? this.#spec.data.filter(({ y }) => y > 0) : this.#spec.data;
    switch (this.#spec.kind) {
      case "histogram": {
        const paint = { fill: this.#paint, tip: true, inset: 0.5 };
        if (isText) return [Plot.barY(sorted(data), Plot.groupX({ y: "count" }, { x: "x", ...paint }))];
        const bins = Plot.binX({ y: "count" }, { x: "x", thresholds: 40, ...paint });
        return [Plot.rectY(sorted(data), bins), Plot.ruleY([0])];
      }
      case "bar": {
        const bars = this.#spec.y === null ? grouped(data) : data;
        if (bars.length > MAX_BARS || this.#spec.x.kind === "time") {
          const title = this.#describe;
          const options = { x: "x", y1: this.#floor, y2: "y", stroke: this.#paint, strokeWidth: 2, title, tip: true };
          return [Plot.ruleX(bars, options)];
        }
        return [this.#bars(bars)];
      }
      case "line":
        return [
          Plot.lineY(data, {
            x: "x",
            y: "y",
            z: this.#spec.colour === null ? null : "colour",
            stroke: this.#paint,
            strokeWidth: 2,
            marker: data.length <= 60 ? "circle" : null,
            title: this.#describe,
            tip: true,
          }),
        ];
      case "dot":
        return [
          Plot.dot(data, {
            x: "x",
            y: "y",
            stroke: this.#paint,
            fill: this.#paint,
            fillOpacity: 0.4,
            r: data.length > 2000 ? 1.5 : 3,
            title: this.#describe,
            tip: true,
          }),
        ];
    }
  }

  /** Bars of numbers: as wide as the smallest distance between them. */
  #bars(bars: Datum[]): Plot.Markish {
    const places = [...new Set(bars.map(({ x }) => Number(x)))].sort((a, b) => a - b);
    const gaps = places.slice(1).map((place, index) => place - (places[index] ?? place));
    const half = (gaps.length === 0 ? 1 : Math.min(...gaps)) * 0.45;
    const stacked = stack(bars, this.#floor);
    return Plot.rect(stacked, {
      x1: (datum: Stacked) => Number(datum.x) - half,
      x2: (datum: Stacked) => Number(datum.x) + half,
      y1: "from",
      y2: "to",
      fill: this.#paint,
      title: this.#describe,
      tip: true,
    });
  }

  /** Bars of texts are horizontal, so that their labels are legible. */
  #sideways(): Plot.PlotOptions {
    const all = this.#spec.y === null ? grouped(this.#spec.data) : this.#spec.data;
    const names = [...new Set(all.map(({ x }) => String(x)))];
    const shown = names.slice(0, MAX_BARS);
    if (names.length > shown.length) {
      this.note = `The chart has the first ${formatNumber(shown.length)} of ${count(names.length, "bar")}.`;
    }
    const kept = new Set(shown);
    const bars = stack(
      all.filter(({ x }) => kept.has(String(x))),
      this.#floor,
    );
    const longest = Math.min(
      shown.reduce((length, name) => Math.max(length, name.length), 0),
      28,
    );
    return {
      height: shown.length * 24 + 64,
      marginLeft: Math.min(longest * 7.5 + 20, this.#spec.width / 2.5),
      marginTop: 44,
      marginRight: 20,
      x: {
        label: this.#yName,
        axis: "top",
        labelOffset: 38,
        grid: true,
        tickFormat: formatShort,
        ...(this.#spec.isLog ? { type: "log" as const, clamp: true } : {}),
      },
      y: { label: null, domain: shown, tickFormat: (name: string) => shorten(name, 28) },
      marks: [
        Plot.barX(bars, {
          x1: "from",
          x2: "to",
          y: (datum: Datum) => String(datum.x),
          fill: this.#paint,
          title: this.#describe,
          tip: true,
        }),
      ],
    };
  }
}

interface Stacked extends Datum {
  from: number;
  to: number;
}

/** Stacks the bars of one place, in the order of the legend. */
function stack(bars: Datum[], floor: number): Stacked[] {
  const tops = new Map<string, number>();
  return sorted(bars).map((bar) => {
    const key = String(Number(bar.x) === Number(bar.x) ? Number(bar.x) : bar.x);
    const from = tops.get(key) ?? floor;
    const to = tops.has(key) ? from + bar.y : Math.max(bar.y, floor);
    tops.set(key, to);
    return { ...bar, from, to };
  });
}

function sorted(data: Datum[]): Datum[] {
  return [...data].sort((a, b) => compareColours(a.colour, b.colour));
}

/** The number of rows for each place and colour. */
function grouped(data: Datum[]): Datum[] {
  const groups = new Map<string, Datum>();
  for (const datum of data) {
    const key = JSON.stringify([datum.x, datum.colour]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { ...datum });
    else group.y += datum.y;
  }
  return [...groups.values()];
}

function asText(value: number | Date | string): string {
  if (value instanceof Date) return value.toISOString();
  return typeof value === "number" ? formatNumber(value) : shorten(value, 60);
}
