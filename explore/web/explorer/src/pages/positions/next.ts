// The positions that followed, as small boards with links.

import type { Board, Position } from "../../api/types";
import { boardView } from "../../board";
import { el } from "../../dom";
import { count, formatNumber } from "../../format";
import { positionRoute } from "../../router";
import { moveName, rounded } from "./moves";

const FIRST = 24;

/** The list of positions that followed. `go` is called before the link is followed in this window. */
export function nextPositions(position: Position, go: (board: Board) => void): HTMLElement {
  const moves = [...new Set(position.next.map(({ move }) => move))].sort((a, b) => a - b);
  const list = el("ol", { class: "next-boards" });
  const more = el("button", { type: "button" });
  const section = el("section", {}, el("h2", {}, "Next positions"));
  if (position.next.length === 0) {
    section.append(
      el("p", { class: "hint" }, "No step follows this position in the archive. Go back, or change the board."),
    );
    return section;
  }

  let chosen: number | null = null;
  let isWhole = false;
  const draw = (): void => {
    const all = position.next.filter(({ move }) => chosen === null || move === chosen);
    const shown = isWhole ? all : all.slice(0, FIRST);
    list.replaceChildren(...shown.map((next) => nextItem(next, go)));
    more.hidden = shown.length === all.length;
    more.textContent = `Show all ${formatNumber(all.length)}`;
  };
  more.addEventListener("click", () => {
    isWhole = true;
    draw();
  });
  if (moves.length > 1) {
    section.append(
      moveChoice(moves, (move) => {
        chosen = move;
        draw();
      }),
    );
  }
  draw();
  section.append(list, more);
  return section;
}

/** A position that followed. The mean final score of its runs may be missing. */
type Next = Position["next"][number] & { mean_score?: number | null };

function nextItem(next: Next, go: (board: Board) => void): HTMLElement {
  const { board, tile_65536_mask: mask } = next;
  const link = el(
    "a",
    { href: positionRoute(board, mask) },
    boardView(board, mask),
    el(
      "span",
      { class: "next-text" },
      moveName(next.move),
      el("span", { class: "hint" }, count(next.num_steps, "time")),
    ),
    next.mean_score == null
      ? null
      : el(
          "span",
          { class: "hint", title: "The mean final score of its runs" },
          `mean ${formatNumber(rounded(next.mean_score))}`,
        ),
  );
  link.addEventListener("click", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) go({ board, mask });
  });
  return el("li", {}, link);
}

function moveChoice(moves: number[], choose: (move: number | null) => void): HTMLElement {
  const option = (move: number | null): HTMLElement => {
    const input = el("input", { type: "radio", name: "next-move" });
    input.checked = move === null;
    input.addEventListener("change", () => choose(move));
    return el("label", {}, input, " ", move === null ? "all moves" : moveName(move));
  };
  return el(
    "fieldset",
    { class: "move-choice" },
    el("legend", { class: "offscreen" }, "After which move"),
    option(null),
    ...moves.map(option),
  );
}
