// Queries for positions.

import type { Game } from "./game";

/** A query for all steps on the board of a position. In the archive, a cell with 65,536 has the digit f. */
export function positionSql(game: Game, at: number): string {
  const { board, mask } = game.run.positions;
  const bits = mask[at] ?? 0;
  const digits = [...(board[at] ?? "0")].map((digit, cell) => ((bits >> cell) & 1 ? "f" : digit)).join("");
  const condition = `board = ${BigInt(`0x${digits}`)}`;
  // The digit f alone is 32,768 or 65,536.
  const tiles = digits.includes("f") ? ` AND coalesce(tile_65536_mask, 0) = ${bits}` : "";
  return `SELECT run_id, step_index, engine, move FROM steps WHERE ${condition}${tiles}`;
}
