// The positions that the reader visited, as small boards.

import type { Board } from "../../api/types";
import { boardView } from "../../board";
import { el } from "../../dom";
import { positionRoute } from "../../router";

const MAX_LENGTH = 60;

export class Path {
  readonly element = el("nav", { class: "position-path", "aria-label": "Path", hidden: true });
  #boards: Board[] = [];
  #at = 0;

  /** Adds a position after the shown one. */
  push(board: Board): void {
    this.#boards = [...this.#boards.slice(0, this.#at + 1), board].slice(-MAX_LENGTH);
    this.#at = this.#boards.length - 1;
    this.#draw();
  }

  /** Goes to a position of the path. Begins a new path if it has no such position. */
  goTo(board: Board): void {
    const found = this.#boards.findIndex((each) => isSame(each, board));
    if (found < 0) this.#boards = [board];
    this.#at = Math.max(found, 0);
    this.#draw();
  }

  #draw(): void {
    this.element.hidden = this.#boards.length < 2;
    if (this.element.hidden) return;
    const steps = this.#boards.map(({ board, mask }, index) => {
      const current = index === this.#at ? "true" : null;
      return el(
        "li",
        {},
        el("a", { href: positionRoute(board, mask), "aria-current": current }, boardView(board, mask)),
      );
    });
    this.element.replaceChildren(el("ol", {}, ...steps));
    const shown = steps[this.#at];
    if (shown !== undefined) this.element.scrollLeft = shown.offsetLeft - this.element.clientWidth / 2;
  }
}

export function isSame(a: Board, b: Board): boolean {
  return a.board === b.board && a.mask === b.mask;
}
