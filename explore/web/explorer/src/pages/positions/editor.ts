// A board whose cells can be changed with the keyboard, the mouse or a finger.

import { el } from "../../dom";
import { exponentOf } from "./parse";

const LARGEST = 16;
/** The longest time between two digits of a number, in milliseconds. */
const TYPING_MS = 1200;

export class BoardEditor {
  readonly element: HTMLElement;
  readonly #cells: HTMLElement[];
  readonly #onChange: (cells: number[]) => void;
  #values: number[] = new Array<number>(16).fill(0);
  #active = 0;
  /** The exponent that a click paints; null = a click raises. */
  #brush: number | null = null;
  #isPainting = false;
  #typed = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(onChange: (cells: number[]) => void) {
    this.#onChange = onChange;
    this.#cells = Array.from({ length: 16 }, (_, cell) =>
      el("span", { class: "tile t0", role: "gridcell", tabindex: cell === 0 ? 0 : -1, "data-cell": cell }),
    );
    this.element = el(
      "div",
      {
        class: "board large editor",
        role: "grid",
        "aria-label": "Board editor",
        "aria-describedby": "editor-help",
      },
      ...[0, 4, 8, 12].map((start) =>
        el("div", { role: "row", class: "editor-row" }, ...this.#cells.slice(start, start + 4)),
      ),
    );
    this.element.addEventListener("keydown", (event) => this.#pressed(event));
    this.element.addEventListener("focusin", (event) => this.#focused(event.target));
    this.element.addEventListener("focusout", () => this.#endTyping());
    this.element.addEventListener("pointerdown", (event) => this.#pointerDown(event));
    this.element.addEventListener("pointermove", (event) => this.#pointerMove(event));
    this.element.addEventListener("pointerup", () => (this.#isPainting = false));
    this.element.addEventListener("pointercancel", () => (this.#isPainting = false));
    this.element.addEventListener("click", (event) => this.#clicked(event));
    this.element.addEventListener("contextmenu", (event) => this.#lower(event));
    this.show(this.#values);
  }

  /** Shows a board, without a call of `onChange`. */
  show(values: number[]): void {
    this.#values = [...values];
    this.#endTyping();
    this.#values.forEach((_, cell) => this.#draw(cell));
  }

  focus(): void {
    this.#cells[this.#active]?.focus();
  }

  setBrush(brush: number | null): void {
    this.#brush = brush;
    this.element.classList.toggle("painting", brush !== null);
  }

  leave(): void {
    clearTimeout(this.#timer);
  }

  #draw(cell: number): void {
    const element = this.#cells[cell];
    const exp = this.#values[cell] ?? 0;
    if (element === undefined) return;
    const isTyping = this.#typed !== "" && cell === this.#active;
    const text = isTyping ? this.#typed : exp === 0 ? "" : String(2 ** exp);
    element.className = `tile t${exp} d${text.length}${isTyping ? " typing" : ""}`;
    element.textContent = text;
    const name = exp === 0 ? "empty" : String(2 ** exp);
    element.setAttribute("aria-label", `Row ${(cell >> 2) + 1}, column ${(cell & 3) + 1}: ${name}`);
  }

  #set(cell: number, exp: number): void {
    if (exp < 0 || exp > LARGEST || this.#values[cell] === exp) {
      this.#draw(cell);
      return;
    }
    this.#values[cell] = exp;
    this.#draw(cell);
    this.#onChange([...this.#values]);
  }

  #raise(cell: number): void {
    const exp = this.#values[cell] ?? 0;
    this.#set(cell, exp === LARGEST ? 0 : exp + 1);
  }

  #move(cell: number): void {
    this.#endTyping();
    this.#cells[cell]?.focus();
  }

  #focused(target: EventTarget | null): void {
    const cell = cellOf(target);
    if (cell === null) return;
    this.#cells[this.#active]?.setAttribute("tabindex", "-1");
    this.#active = cell;
    this.#cells[cell]?.setAttribute("tabindex", "0");
  }

  #pressed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const cell = this.#active;
    const value = this.#values[cell] ?? 0;
    const actions: Record<string, () => void> = {
      ArrowUp: () => this.#move(cell < 4 ? cell : cell - 4),
      ArrowDown: () => this.#move(cell > 11 ? cell : cell + 4),
      ArrowLeft: () => this.#move(cell % 4 === 0 ? cell : cell - 1),
      ArrowRight: () => this.#move(cell % 4 === 3 ? cell : cell + 1),
      Home: () => this.#move(0),
      End: () => this.#move(15),
      "+": () => this.#set(cell, value + 1),
      "=": () => this.#set(cell, value + 1),
      "-": () => this.#set(cell, value - 1),
      Backspace: () => this.#set(cell, 0),
      Delete: () => this.#set(cell, 0),
      Enter: () => this.#apply(cell),
      " ": () => this.#apply(cell),
    };
    const action = actions[event.key];
    if (action === undefined && !/^\d$/.test(event.key)) return;
    event.preventDefault();
    if (action === undefined) {
      this.#type(event.key);
    } else {
      this.#endTyping();
      action();
    }
  }

  #apply(cell: number): void {
    if (this.#brush === null) this.#raise(cell);
    else this.#set(cell, this.#brush);
  }

  /** Typed digits form the tile's number. The cell takes each prefix that is a tile: 2, then 2048. */
  #type(digit: string): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#endTyping(), TYPING_MS);
    const isNew = this.#typed === "" || Number(this.#typed + digit) > 2 ** LARGEST;
    this.#typed = (isNew ? digit : this.#typed + digit).replace(/^0+/, "");
    const exp = this.#typed === "" ? 0 : exponentOf(Number(this.#typed));
    if (exp === null) this.#draw(this.#active);
    else this.#set(this.#active, exp);
  }

  #endTyping(): void {
    clearTimeout(this.#timer);
    if (this.#typed === "") return;
    this.#typed = "";
    this.#draw(this.#active);
  }

  #pointerDown(event: PointerEvent): void {
    const cell = cellOf(event.target);
    if (cell === null || event.button !== 0 || event.shiftKey || this.#brush === null) return;
    this.#isPainting = true;
    this.#set(cell, this.#brush);
  }

  #pointerMove(event: PointerEvent): void {
    if (!this.#isPainting || this.#brush === null) return;
    // Touch events keep their first target, so the cell is found by the pointer's place.
    const cell = cellOf(document.elementFromPoint(event.clientX, event.clientY));
    if (cell !== null) this.#set(cell, this.#brush);
  }

  #clicked(event: MouseEvent): void {
    const cell = cellOf(event.target);
    if (cell === null) return;
    this.#move(cell);
    if (event.shiftKey) this.#set(cell, (this.#values[cell] ?? 0) - 1);
    else if (this.#brush === null) this.#raise(cell);
  }

  #lower(event: MouseEvent): void {
    const cell = cellOf(event.target);
    if (cell === null) return;
    event.preventDefault();
    this.#move(cell);
    this.#set(cell, (this.#values[cell] ?? 0) - 1);
  }
}

function cellOf(target: EventTarget | null): number | null {
  const element = target instanceof Element ? target.closest<HTMLElement>(".editor [data-cell]") : null;
  return element === null ? null : Number(element.dataset["cell"]);
}
