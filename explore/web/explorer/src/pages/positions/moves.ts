// The moves that were played on a position: a row for each legal move.

import type { FourValues, Position, PositionMove } from "../../api/types";
import { ARROWS, boardView, MOVES } from "../../board";
import type { Child } from "../../dom";
import { el } from "../../dom";
import { formatNumber, formatShare } from "../../format";

export interface Policy {
  name: string;
  values: FourValues;
}

/** The table of the legal moves, the most frequent one first. */
export function movesTable(position: Position, policy: Policy | null): HTMLElement {
  const played = new Map(position.moves.map((move) => [move.move, move]));
  const legal = [0, 1, 2, 3].filter((move) => position.after[move] != null);
  legal.sort((a, b) => (played.get(b)?.num_steps ?? 0) - (played.get(a)?.num_steps ?? 0) || a - b);
  if (legal.length === 0) return el("p", { class: "hint" }, "The position has no legal move.");
  const header = (title: string, isNumber = true, help: string | null = null): HTMLElement =>
    el("th", { scope: "col", class: isNumber ? "number" : null, title: help }, title);
  const table = el(
    "table",
    { class: "moves" },
    el("caption", { class: "offscreen" }, "Legal moves"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        header("Move", false),
        header("Board after it", false, "Before a new tile appears"),
        header("Played"),
        header("Share", false),
        header("Mean score", true, "The mean final score of the runs that played it"),
        header("Best score", true, "The best final score of these runs"),
        header("Mean value", true, "The mean of the engines' values of this move"),
        policy === null ? null : header(`Value: ${policy.name}`),
        header("Engines", true, "The number of engines that played it"),
      ),
    ),
    el("tbody", {}, ...legal.map((move) => moveRow(position, move, played.get(move), policy))),
  );
  return el("div", { class: "scroll", role: "region", "aria-label": "Legal moves", tabindex: 0 }, table);
}

function moveRow(position: Position, move: number, row: PositionMove | undefined, policy: Policy | null): HTMLElement {
  const after = position.after[move];
  const number = (value: number | null | undefined): HTMLElement =>
    el("td", { class: "number" }, value == null ? unknown() : formatNumber(rounded(value)));
  return el(
    "tr",
    { class: row === undefined ? "unplayed" : null },
    el("th", { scope: "row" }, moveName(move)),
    el(
      "td",
      {},
      after == null ? null : boardView(after.board, after.mask),
      after == null || after.reward === 0 ? null : el("span", { class: "reward" }, `+${formatNumber(after.reward)}`),
    ),
    el("td", { class: "number" }, formatNumber(row?.num_steps ?? 0)),
    el("td", { class: "share" }, shareBar((row?.num_steps ?? 0) / Math.max(position.num_found, 1), move)),
    number(row?.mean_score),
    number(row?.max_score),
    number(row?.mean_value),
    policy === null ? null : number(policy.values[move]),
    el("td", { class: "number" }, formatNumber(row?.num_engines ?? 0)),
  );
}

/** A move as its arrow and its name. */
export function moveName(move: number): HTMLElement {
  return el(
    "span",
    { class: "move-name" },
    el("span", { class: `arrow m${move}`, "aria-hidden": "true" }, ARROWS[move] ?? ""),
    ` ${MOVES[move] ?? move}`,
  );
}

export function unknown(): Child {
  return el("span", { class: "null", title: "unknown" }, "–");
}

/** Rounds to four digits, or to an integer if the number is longer. */
export function rounded(value: number): number {
  return Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
}

function shareBar(share: number, move: number): HTMLElement {
  const bar = el("span", { class: `bar m${move}` });
  bar.style.width = `${share * 100}%`;
  return el(
    "span",
    { class: "share-bar" },
    el("span", { class: "track", "aria-hidden": "true" }, bar),
    el("span", { class: "number" }, formatShare(share)),
  );
}
