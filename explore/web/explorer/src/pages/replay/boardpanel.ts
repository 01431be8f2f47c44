// The board with arrows at its edges: the played move and the best one.

import { ARROWS, BoardView } from "../../board";
import { el } from "../../dom";
import type { Symmetry } from "../../symmetry";
import type { Game } from "./game";

const EDGES = ["top", "bottom", "left", "right"];

export class BoardPanel {
  readonly element: HTMLElement;
  readonly #board = new BoardView("large");
  readonly #edges = EDGES.map((edge, move) =>
    el("span", { class: `edge ${edge}`, "aria-hidden": "true" }, ARROWS[move] ?? ""),
  );

  constructor() {
    this.element = el("div", { class: "board-frame" }, this.#board.element, ...this.#edges);
  }

  show(game: Game, at: number, symmetry: Symmetry): void {
    const cells = game.cells(at);
    this.#board.show(symmetry.cells.map((cell) => cells[cell] ?? 0));
    const values = game.values(at);
    this.#edges.forEach((edge, turned) => {
      const move = symmetry.inverse[turned] ?? turned;
      edge.classList.toggle("played", game.played(at) === move);
      edge.classList.toggle("best", values[move] !== null && values[move] === game.best[at]);
    });
  }
}
