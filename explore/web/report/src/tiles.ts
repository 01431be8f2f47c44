// Tiles and boards in the colours of the game.

import { el } from "./dom";

/** The exponent of a tile: 11 for 2048; 0 for an empty cell. */
export function exponent(tile: number): number {
  return tile < 2 ? 0 : Math.round(Math.log2(tile));
}

/** A tile as a small square with its number. */
export function tileChip(tile: number): HTMLElement {
  return el("span", { class: `tile t${exponent(tile)}` }, String(tile));
}

/** The exponents of the sixteen cells of a board that is given as 16 hex digits. */
export function exponents(board: string, mask = 0): number[] {
  return [...board].map((digit, cell) => ((mask >> cell) & 1 ? 16 : Number.parseInt(digit, 16)));
}

/** A board as a grid of tiles, read by screen readers as rows of numbers. */
export function boardView(board: string, mask = 0, size: "small" | "large" = "small"): HTMLElement {
  const cells = exponents(board, mask);
  const names = cells.map((exp) => (exp === 0 ? "empty" : String(2 ** exp)));
  const rows = [0, 4, 8, 12].map((start) => names.slice(start, start + 4).join(" "));
  return el(
    "span",
    { class: `board ${size}`, role: "img", "aria-label": `board: ${rows.join(", ")}` },
    ...cells.map((exp) => el("span", { class: `tile t${exp}` }, exp === 0 ? "" : tileText(exp))),
  );
}

/** A tile's number, short enough for a cell: 16384 is 16k. */
function tileText(exp: number): string {
  return exp < 14 ? String(2 ** exp) : `${2 ** (exp - 10)}k`;
}

/** The colour of a tile in charts. Neighbouring tiles differ in lightness for all kinds of colour vision. */
export function tileColor(tile: number): string {
  return `var(--tile-line-${Math.min(Math.max(exponent(tile), 1), 16)})`;
}
