// The timeline of a run: a slider, a strip of marks, and lines. The cursor moves without a new drawing.

import { debounce, el } from "../../dom";
import { formatNumber } from "../../format";
import { colorOf, drawLine, prepare } from "./canvas";
import type { Game } from "./game";
import type { Kind, Marks } from "./marks";
import { KIND_NAMES, nearestMark } from "./marks";

/** Half the width of the slider's thumb. The slider's values span the width without these margins. */
const INSET = 8;
/** Above this share of marked positions, the strip shows the density of the marks. */
const DENSE = 0.1;
/** The largest distance of a click from its mark, in pixels. */
const NEAR = 8;

interface LineRow {
  title: string;
  color: string;
  values: Float64Array;
  low: number | null;
  text(value: number): string;
  label: HTMLElement;
}

export class Timeline {
  readonly element: HTMLElement;
  readonly slider: HTMLInputElement;
  readonly #game: Game;
  readonly #go: (at: number) => void;
  readonly #kinds: Kind[];
  readonly #counts = new Map<Kind, HTMLElement>();
  readonly #lines: LineRow[];
  readonly #canvas = el("canvas", { class: "timeline-canvas", "aria-hidden": "true" });
  readonly #cursor = el("div", { class: "timeline-cursor", "aria-hidden": "true" });
  /** The step below the pointer. */
  readonly #pointed = el("div", { class: "timeline-pointed", "aria-hidden": "true", hidden: true });
  readonly #track: HTMLElement;
  readonly #labels: HTMLElement;
  readonly #sizes = new ResizeObserver(debounce(30, () => this.draw()));
  #marks: Marks | null = null;
  #width = 0;
  /** The upper edges of the rows, and the lower edge of the last one. They follow the labels. */
  #edges: number[] = [];
  #at = 0;

  constructor(game: Game, kinds: Kind[], go: (at: number) => void, chooseKind: (kind: Kind) => void) {
    this.#game = game;
    this.#go = go;
    this.#kinds = kinds;
    this.#lines = lineRows(game);
    this.slider = el("input", {
      type: "range",
      class: "scrubber",
      min: 0,
      max: Math.max(game.length - 1, 0),
      value: 0,
      "aria-label": "Position in the run",
    });
    this.slider.addEventListener("input", () => go(Number(this.slider.value)));
    this.#track = el("div", { class: "timeline-track" }, this.#canvas, this.#cursor, this.#pointed);
    this.#labels = el(
      "div",
      { class: "timeline-labels" },
      ...this.#kinds.map((kind) => this.#kindLabel(kind, chooseKind)),
      ...this.#lines.map(({ title, label }) => el("div", { class: "line-label" }, el("span", {}, title), label)),
    );
    this.element = el("div", { class: "timeline" }, el("div"), this.slider, this.#labels, this.#track);
    this.#listen();
    this.#sizes.observe(this.#track);
  }

  setMarks(marks: Marks): void {
    this.#marks = marks;
    for (const [kind, element] of this.#counts) element.textContent = formatNumber(marks[kind].length);
    this.draw();
  }

  show(at: number): void {
    this.#at = at;
    const step = this.#game.step(at);
    this.slider.value = String(at);
    this.slider.setAttribute("aria-valuetext", step === null ? "final board" : `step ${formatNumber(step)}`);
    this.#cursor.style.transform = `translateX(${this.#x(at)}px)`;
    for (const { values, text, label } of this.#lines) {
      const value = values[at] ?? Number.NaN;
      const shown = Number.isNaN(value) ? "–" : text(value);
      if (label.textContent !== shown) label.textContent = shown;
    }
  }

  leave(): void {
    this.#sizes.disconnect();
  }

  draw(): void {
    this.#width = this.#track.clientWidth;
    const { top } = this.#labels.getBoundingClientRect();
    const boxes = [...this.#labels.children].map((label) => label.getBoundingClientRect());
    this.#edges = [...boxes.map((box) => Math.round(box.top - top)), Math.ceil((boxes.at(-1)?.bottom ?? top) - top)];
    const context = prepare(this.#canvas, this.#width, this.#edges.at(-1) ?? 0);
    if (context === null) return;
    this.#kinds.forEach((kind, row) => this.#drawMarks(context, kind, row));
    const line = colorOf(this.#track, "--line");
    this.#lines.forEach(({ values, low, color }, index) => {
      const [above, height] = this.#row(this.#kinds.length + index);
      context.fillStyle = line;
      context.fillRect(0, above, this.#width, 1);
      const [least, greatest] = range(values);
      const style = { values, low: low ?? least, high: greatest, color: colorOf(this.#track, color) };
      drawLine(context, style, INSET, this.#width - 2 * INSET, above + 5, height - 9);
    });
    this.show(this.#at);
  }

  #row(index: number): [number, number] {
    const above = this.#edges[index] ?? 0;
    return [above, (this.#edges[index + 1] ?? 0) - above];
  }

  /** Several positions can share a column of pixels. The opacity of frequent marks then shows their density. */
  #drawMarks(context: CanvasRenderingContext2D, kind: Kind, row: number): void {
    const [above, height] = this.#row(row);
    const marks = this.#marks?.[kind] ?? [];
    const isDense = marks.length > DENSE * this.#game.length && this.#game.length > this.#width;
    const perColumn = this.#game.length / Math.max(this.#width - 2 * INSET, 1);
    const columns = new Map<number, number>();
    for (const at of marks) {
      const x = Math.round(this.#x(at));
      columns.set(x, (columns.get(x) ?? 0) + 1);
    }
    context.fillStyle = colorOf(this.#track, KIND_NAMES[kind].color);
    for (const [x, number] of columns) {
      context.globalAlpha = isDense ? 0.1 + 0.9 * Math.min(number / perColumn, 1) : 1;
      context.fillRect(isDense ? x : x - 1, above + 3, isDense ? 1 : 2, height - 6);
    }
    context.globalAlpha = 1;
  }

  #x(at: number): number {
    return INSET + (at / Math.max(this.#game.length - 1, 1)) * Math.max(this.#width - 2 * INSET, 0);
  }

  #atX(x: number): number {
    const share = (x - INSET) / Math.max(this.#width - 2 * INSET, 1);
    return Math.round(Math.min(Math.max(share, 0), 1) * (this.#game.length - 1));
  }

  #listen(): void {
    let isDragging = false;
    this.#track.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const { left, top } = this.#track.getBoundingClientRect();
      const [x, y] = [event.clientX - left, event.clientY - top];
      const kind = this.#kinds[this.#edges.findLastIndex((edge) => edge <= y)];
      if (kind !== undefined) {
        const mark = nearestMark(this.#marks?.[kind] ?? [], this.#atX(x));
        if (mark !== null && Math.abs(this.#x(mark) - x) <= NEAR) {
          this.#go(mark);
          return;
        }
      }
      isDragging = true;
      this.#track.setPointerCapture(event.pointerId);
      this.#go(this.#atX(x));
    });
    this.#track.addEventListener("pointermove", (event) => {
      const at = this.#atX(event.clientX - this.#track.getBoundingClientRect().left);
      this.#point(at);
      if (isDragging) this.#go(at);
    });
    this.#track.addEventListener("pointerleave", () => {
      this.#pointed.hidden = true;
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.#track.addEventListener(name, () => {
        isDragging = false;
      });
    }
  }

  #point(at: number): void {
    const x = this.#x(at);
    const step = this.#game.step(at);
    this.#pointed.hidden = false;
    this.#pointed.textContent = step === null ? "final board" : `step ${formatNumber(step)}`;
    this.#pointed.classList.toggle("before", x > this.#width / 2);
    this.#pointed.style.transform = `translateX(${x}px)`;
  }

  #kindLabel(kind: Kind, choose: (kind: Kind) => void): HTMLElement {
    const number = el("span", { class: "number" }, "0");
    this.#counts.set(kind, number);
    const { many } = KIND_NAMES[kind];
    const label = el(
      "button",
      { type: "button", class: "kind-label", title: `Step through these with n and p` },
      el("span", { class: `swatch kind-${kind}`, "aria-hidden": "true" }),
      el("span", {}, many),
      number,
    );
    label.addEventListener("click", () => choose(kind));
    return label;
  }
}

function lineRows(game: Game): LineRow[] {
  const row = (
    title: string,
    color: string,
    values: Float64Array,
    low: number | null,
    text: (value: number) => string,
  ): LineRow => ({ title, color, values, low, text, label: el("span", { class: "number" }) });
  return [
    row("Score", "--series-6", game.score, 0, formatNumber),
    row("Best value", "--series-0", game.best, null, (value) => game.valueText(value)),
    row("Empty cells", "--series-2", game.empty, 0, formatNumber),
    row("Largest tile", "--series-1", game.maxExp, 0, (exp) => formatNumber(2 ** exp)),
  ].filter(({ values }) => values.some((value) => !Number.isNaN(value)));
}

function range(values: Float64Array): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
