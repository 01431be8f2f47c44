// The marked positions of a run: blunders, hard moves, disagreements and new tiles.

import type { Game } from "./game";

export const KINDS = ["blunder", "hard", "disagreement", "tile"] as const;
export type Kind = (typeof KINDS)[number];

export const KIND_NAMES: Record<Kind, { one: string; many: string; color: string }> = {
  blunder: { one: "blunder", many: "Blunders", color: "--series-1" },
  hard: { one: "hard move", many: "Hard moves", color: "--series-3" },
  disagreement: { one: "disagreement", many: "Disagreements", color: "--series-0" },
  tile: { one: "new tile", many: "New tiles", color: "--series-2" },
};

/** The kinds that a run can have. */
export function kindsOf(game: Game): Kind[] {
  return KINDS.filter((kind) => kind !== "disagreement" || game.models.length > 0);
}

/** The limits for marks, in the unit of normalized values: 0 to 1. */
export interface Thresholds {
  /** The least loss of a blunder. */
  minLoss: number;
  /** The greatest gap of a hard move. Equal values make no hard move, because either choice is right. */
  maxGap: number;
}

/** For each kind, the indices of the marked positions in ascending order. */
export type Marks = Record<Kind, number[]>;

export function findMarks(game: Game, { minLoss, maxGap }: Thresholds): Marks {
  const marks: Marks = { blunder: [], hard: [], disagreement: [], tile: [] };
  let largest = game.maxExp[0] ?? 0;
  for (let at = 0; at < game.length; at += 1) {
    const [loss, gap, maxExp] = [game.loss[at] ?? NaN, game.gap[at] ?? NaN, game.maxExp[at] ?? 0];
    if (loss >= minLoss) marks.blunder.push(at);
    if (gap > 0 && gap <= maxGap) marks.hard.push(at);
    if (disagrees(game, at)) marks.disagreement.push(at);
    if (maxExp > largest) marks.tile.push(at);
    largest = Math.max(largest, maxExp);
  }
  return marks;
}

function disagrees(game: Game, at: number): boolean {
  const played = game.played(at);
  if (played === null) return false;
  return game.models.some(({ model, rows }) => {
    const preferred = model.preferred[rows[at] ?? -1] ?? null;
    return preferred !== null && preferred !== played;
  });
}

/** The kinds of a position. */
export function kindsAt(marks: Marks, at: number): Kind[] {
  return KINDS.filter((kind) => marks[kind][lowerBound(marks[kind], at)] === at);
}

/** The next mark in a direction; null at the end. */
export function nextMark(marks: number[], at: number, direction: 1 | -1): number | null {
  const place = direction === 1 ? lowerBound(marks, at + 1) : lowerBound(marks, at) - 1;
  return marks[place] ?? null;
}

/** The mark that is nearest to a position. */
export function nearestMark(marks: number[], at: number): number | null {
  const place = lowerBound(marks, at);
  const [before, after] = [marks[place - 1], marks[place]];
  if (before === undefined || after === undefined) return before ?? after ?? null;
  return at - before < after - at ? before : after;
}

/** The first place whose value is at least `value`. */
function lowerBound(sorted: number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The sign for a move's distance from the best one. The loss of a blunder is "!!". */
export function severity(behind: number, { minLoss, maxGap }: Thresholds): string {
  if (behind === 0) return "";
  if (minLoss > 0 && behind >= minLoss) return "!!";
  if (minLoss > 0 && behind >= minLoss / 4) return "!";
  return behind <= maxGap ? "≈" : "";
}
