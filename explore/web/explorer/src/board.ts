// Boards and tiles.

import { el } from "./dom";

export const MOVES = ["up", "down", "left", "right"] as const;
export const ARROWS = ["↑", "↓", "←", "→"] as const;

/** The exponents of the sixteen cells: 11 for 2048, 0 for an empty cell, 16 for a cell of the mask. */
export function exponents(board: string, mask = 0): number[] {
  return [...board].map((digit, cell) => ((mask >> cell) & 1 ? 16 : Number.parseInt(digit, 16)));
}

/** The board of sixteen exponents. As in the archive, a cell with 65,536 has the digit f and a bit of the mask. */
export function boardOf(cells: number[]): { board: string; mask: number } {
  return {
    board: cells.map((exp) => Math.min(exp, 15).toString(16)).join(""),
    mask: cells.reduce((mask, exp, cell) => (exp === 16 ? mask | (1 << cell) : mask), 0),
  };
}

/** The text of a board for screen readers: its rows as numbers. */
export function boardLabel(cells: number[]): string {
  const names = cells.map((exp) => (exp === 0 ? "empty" : String(2 ** exp)));
  return `Board: ${[0, 4, 8, 12].map((start) => names.slice(start, start + 4).join(" ")).join("; ")}`;
}

/** A board as text: four lines of numbers, aligned; a dot for an empty cell. */
export function boardText(cells: number[]): string {
  const names = cells.map((exp) => (exp === 0 ? "." : String(2 ** exp)));
  const width = Math.max(...names.map((name) => name.length));
  return [0, 4, 8, 12]
    .map((start) =>
      names
        .slice(start, start + 4)
        .map((name) => name.padStart(width))
        .join(" "),
    )
    .join("\n");
}

/** A tile as a small square with its number. */
export function tileChip(tile: number): HTMLElement {
  return el("span", { class: `tile t${tile < 2 ? 0 : Math.round(Math.log2(tile))}` }, String(tile));
}

/** A board that can be changed in place. `small` is for tables, `large` fills the available width. */
export class BoardView {
  readonly element: HTMLElement;
  readonly #cells: HTMLElement[];

  constructor(size: "small" | "large") {
    this.#cells = Array.from({ length: 16 }, () => el("span", { class: "tile t0" }));
    this.element = el("span", { class: `board ${size}`, role: "img" }, ...this.#cells);
  }

  show(cells: number[]): void {
    cells.forEach((exp, index) => {
      const cell = this.#cells[index];
      const name = `tile t${exp} d${exp === 0 ? 0 : String(2 ** exp).length}`;
      if (cell === undefined || cell.className === name) return;
      cell.className = name;
      cell.textContent = exp === 0 ? "" : String(2 ** exp);
    });
    this.element.setAttribute("aria-label", boardLabel(cells));
  }
}

/** A board that does not change. */
export function boardView(board: string, mask = 0, size: "small" | "large" = "small"): HTMLElement {
  const view = new BoardView(size);
  view.show(exponents(board, mask));
  return view.element;
}
