// Colours of heat maps. A share of 0 has the colour of an empty cell.

/** The share from which text in a cell must have the other colour: there, both colours have a contrast of 4.5. */
const DARK_FROM = 0.7;

function percent(strength: number): number {
  return Math.round(Math.min(Math.max(strength, 0), 1) * 100);
}

/** The colour of a cell with a share from 0 to 1. */
export function heat(share: number): string {
  return `color-mix(in oklab, var(--heat) ${percent(share)}%, var(--cell))`;
}

/** The colour of text in a cell with this share. */
export function heatText(share: number): string {
  return share > DARK_FROM ? "var(--heat-text)" : "var(--cell-text)";
}

/** Blue for less than expected, orange for more; strongest at four standard errors. */
export function diverging(errors: number): string {
  const color = errors < 0 ? "--fewer" : "--more";
  return `color-mix(in oklab, var(${color}) ${percent(Math.abs(errors) / 4)}%, var(--cell))`;
}

interface Shared {
  share: number;
}

/** The options of cells and their texts in charts. */
export const heatFill = { value: (cell: Shared) => heat(cell.share), scale: null } as const;
export const heatTextFill = { value: (cell: Shared) => heatText(cell.share), scale: null } as const;
