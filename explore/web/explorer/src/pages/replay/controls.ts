// The buttons below the board.

import { el } from "../../dom";
import { formatNumber } from "../../format";
import { SYMMETRIES } from "../../symmetry";
import type { Game } from "./game";
import type { Kind, Marks } from "./marks";
import { KIND_NAMES, KINDS } from "./marks";
import { SPEEDS } from "./player";

interface Actions {
  go(at: number): void;
  by(positions: number): void;
  mark(direction: 1 | -1): void;
  symmetry(index: number): void;
  play(): void;
  /** Sets the speed in positions per second. */
  speed(positions: number): void;
}

export class Controls {
  readonly element: HTMLElement;
  readonly #last: number;
  readonly #play = el("button", { type: "button", class: "play primary", title: "Play (Space)" }, "▶ Play");
  readonly #backward: HTMLButtonElement[];
  readonly #forward: HTMLButtonElement[];
  readonly #kind = el("select", { "aria-label": "Kind of mark" });
  readonly #symmetry: HTMLSelectElement;
  readonly #speeds: HTMLSelectElement;

  constructor(game: Game, kinds: Kind[], speed: number, actions: Actions) {
    this.#last = game.length - 1;
    this.#backward = [
      button("|◀", "First position (g)", () => actions.go(0)),
      button("−10", "10 positions back ([)", () => actions.by(-10)),
      button("◀", "One position back (h)", () => actions.by(-1)),
    ];
    this.#forward = [
      button("▶", "One position forward (l)", () => actions.by(1)),
      button("+10", "10 positions forward (])", () => actions.by(10)),
      button("▶|", "Last position (G)", () => actions.go(this.#last)),
    ];
    this.#play.addEventListener("click", () => actions.play());
    this.#kind.append(...kinds.map((kind) => el("option", { value: kind }, KIND_NAMES[kind].many)));
    this.#symmetry = el("select", {}, ...SYMMETRIES.map(({ name }, value) => el("option", { value }, name)));
    this.#symmetry.addEventListener("change", () => actions.symmetry(Number(this.#symmetry.value)));
    this.#speeds = el("select", {}, ...SPEEDS.map((value) => el("option", { value }, `${value} a second`)));
    this.#speeds.addEventListener("change", () => actions.speed(Number(this.#speeds.value)));
    this.setSpeed(speed);
    this.element = el(
      "div",
      { class: "controls" },
      el(
        "div",
        { class: "steps", role: "group", "aria-label": "Step" },
        ...this.#backward,
        this.#play,
        ...this.#forward,
      ),
      el(
        "div",
        { class: "mark-steps", role: "group", "aria-label": "Step through marks" },
        button("◀", "Previous mark (p)", () => actions.mark(-1)),
        this.#kind,
        button("▶", "Next mark (n)", () => actions.mark(1)),
      ),
      el(
        "div",
        { class: "choices" },
        el("label", { class: "choice" }, "Speed ", this.#speeds),
        el("label", { class: "choice" }, "Board ", this.#symmetry),
      ),
    );
  }

  get kind(): Kind {
    return KINDS.find((kind) => kind === this.#kind.value) ?? "blunder";
  }

  chooseKind(kind: Kind): void {
    this.#kind.value = kind;
  }

  setSymmetry(index: number): void {
    this.#symmetry.value = String(index);
  }

  setSpeed(positions: number): void {
    this.#speeds.value = String(positions);
  }

  setMarks(marks: Marks): void {
    for (const option of this.#kind.options) {
      const kind = KINDS.find((each) => each === option.value);
      if (kind !== undefined) option.textContent = `${KIND_NAMES[kind].many} (${formatNumber(marks[kind].length)})`;
    }
  }

  setPlaying(isPlaying: boolean): void {
    this.#play.textContent = isPlaying ? "‖ Pause" : "▶ Play";
  }

  show(at: number): void {
    // A disabled button would lose the focus, so the end of the run only looks disabled.
    for (const element of this.#backward) element.setAttribute("aria-disabled", String(at === 0));
    for (const element of this.#forward) element.setAttribute("aria-disabled", String(at === this.#last));
  }
}

function button(text: string, title: string, press: () => void): HTMLButtonElement {
  const element = el("button", { type: "button", title, "aria-label": title.replace(/ \(.*/, "") }, text);
  element.addEventListener("click", press);
  return element;
}
