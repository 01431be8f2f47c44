// The list of runs: a grid that has elements only for the rows in view.

import type { RunRow, Runs } from "../../api/types";
import { debounce, el } from "../../dom";
import { formatNumber } from "../../format";
import { COLUMNS } from "./columns";
import { RowPages } from "./pages";
import type { RunQuery } from "./query";
import { Scroller } from "./scroller";

export interface ListPosition {
  top: number;
  active: number;
}

interface ListOptions {
  load(offset: number, limit: number, signal: AbortSignal): Promise<Runs>;
  onSort(name: string): void;
  onOpen(row: RunRow): void;
  onAnswer(runs: Runs): void;
  onError(error: unknown): void;
  /** Reports the rows in view. */
  onView(first: number, last: number, total: number): void;
}

export class RunList {
  readonly element: HTMLElement;
  readonly #options: ListOptions;
  readonly #headers: HTMLElement[];
  readonly #view = el("div", { role: "rowgroup" });
  readonly #body = el("div", { class: "run-rows", role: "presentation" });
  readonly #empty = el("p", { class: "empty-list", hidden: true });
  readonly #scroller: Scroller;
  readonly #pages: RowPages;
  readonly #elements = new Map<number, HTMLElement>();
  readonly #sizes = new ResizeObserver(() => this.#measure());
  /** Fast scrolling loads only the rows where it stops. */
  readonly #want = debounce(60, () => this.#load());
  #total: number | null = null;
  #active = 0;
  #rowHeight = 30;
  #restore: ListPosition | null = null;

  constructor(options: ListOptions) {
    this.#options = options;
    this.#headers = COLUMNS.map(({ name, title, number }) => {
      const button = el("button", { type: "button", class: "sort", title: `Sort by ${name}` }, title);
      button.addEventListener("click", () => options.onSort(name));
      return el("div", { role: "columnheader", class: `cell c-${name}${number ? " number" : ""}` }, button);
    });
    const header = el("div", { role: "row", class: "run-row head", "aria-rowindex": 1 }, ...this.#headers);
    this.#view.append(this.#body);
    const box = el("div", { class: "run-scroll", role: "presentation" });
    this.#scroller = new Scroller(box, this.#view, () => this.#draw());
    this.element = el(
      "div",
      { class: "run-list", role: "grid", tabindex: 0, "aria-label": "Runs", "aria-readonly": "true" },
      el("div", { role: "rowgroup", class: "run-head" }, header),
      box,
      this.#empty,
    );
    this.#pages = new RowPages(
      options.load,
      (runs) => this.#answered(runs),
      (error) => options.onError(error),
    );
    this.element.addEventListener("keydown", (event) => this.#pressed(event));
    this.#body.addEventListener("click", (event) => this.#clicked(event));
    this.#sizes.observe(box);
  }

  /** Loads the list anew. Shows `position` again if there is one. */
  reload({ sort, descending }: RunQuery, position: ListPosition | null): void {
    this.#pages.clear();
    this.#restore = position ?? { top: 0, active: 0 };
    COLUMNS.forEach(({ name }, index) => {
      const header = this.#headers[index];
      if (name !== sort) header?.removeAttribute("aria-sort");
      else header?.setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
    this.element.setAttribute("aria-busy", "true");
    const first = Math.floor(this.#restore.top / this.#rowHeight);
    this.#pages.want(first, first + this.#numVisible);
  }

  get position(): ListPosition {
    return { top: this.#scroller.top, active: this.#active };
  }

  get hasRows(): boolean {
    return this.#total !== null && this.#total > 0;
  }

  focus(): void {
    this.element.focus();
  }

  /** Shows a text instead of rows. */
  showEmpty(text: string): void {
    this.#empty.textContent = text;
    this.#empty.hidden = false;
    this.#total = 0;
    this.element.removeAttribute("aria-busy");
    this.#scroller.setHeight(0);
  }

  leave(): void {
    this.#want.cancel();
    this.#pages.stop();
    this.#sizes.disconnect();
  }

  get #numVisible(): number {
    // Before the first measurement, the height of the window is the limit.
    return Math.ceil((this.#scroller.viewHeight || innerHeight) / this.#rowHeight) + 1;
  }

  #answered(runs: Runs): void {
    this.element.removeAttribute("aria-busy");
    this.#options.onAnswer(runs);
    this.element.setAttribute("aria-rowcount", String(runs.total + 1));
    if (this.#restore !== null) {
      const { top, active } = this.#restore;
      this.#restore = null;
      this.#active = Math.min(active, Math.max(runs.total - 1, 0));
      this.#setTotal(runs.total);
      this.#scroller.scrollTo(top);
    } else if (runs.total !== this.#total) {
      this.#setTotal(runs.total);
    }
    this.#clearRows();
    this.#draw();
    this.#load();
  }

  #setTotal(total: number): void {
    this.#total = total;
    this.#empty.hidden = true;
    this.#scroller.setHeight(total * this.#rowHeight);
  }

  #measure(): void {
    this.#scroller.measure();
    const height = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) * 2;
    if (height !== this.#rowHeight) {
      const first = this.#scroller.top / this.#rowHeight;
      this.#rowHeight = height;
      if (this.#total !== null) {
        this.#scroller.setHeight(this.#total * height);
        this.#scroller.scrollTo(first * height);
      }
    }
    this.#view.style.height = `${this.#scroller.viewHeight}px`;
    this.#scroller.scrollTo(this.#scroller.top);
  }

  /** Adds, moves and removes elements so that they match the rows in view. */
  #draw(): void {
    const total = this.#total ?? 0;
    const { top } = this.#scroller;
    const first = Math.max(Math.floor(top / this.#rowHeight) - 2, 0);
    const last = Math.min(Math.ceil((top + this.#scroller.viewHeight) / this.#rowHeight) + 2, total);
    for (const [index, element] of this.#elements) {
      if (index >= first && index < last) continue;
      element.remove();
      this.#elements.delete(index);
    }
    for (let index = first; index < last; index += 1) {
      let element = this.#elements.get(index);
      if (element === undefined) {
        element = this.#rowElement(index);
        this.#elements.set(index, element);
        this.#place(index, element);
      }
      element.style.transform = `translateY(${Math.round(index * this.#rowHeight - top)}px)`;
    }
    this.#showActive();
    const visible = Math.min(Math.floor((top + this.#scroller.viewHeight) / this.#rowHeight), total);
    if (this.#total !== null) this.#options.onView(Math.ceil(top / this.#rowHeight), visible, total);
    this.#want();
  }

  /** Keeps the elements in the order of the rows, for screen readers. */
  #place(index: number, element: HTMLElement): void {
    const next = this.#elements.get(index + 1);
    if (next?.isConnected) next.before(element);
    else this.#body.append(element);
  }

  #load(): void {
    if (this.#total === null || this.#total === 0) return;
    const first = Math.floor(this.#scroller.top / this.#rowHeight);
    const around = this.#numVisible;
    this.#pages.want(Math.max(first - around, 0), Math.min(first + 2 * around, this.#total - 1));
  }

  #clearRows(): void {
    this.#body.replaceChildren();
    this.#elements.clear();
  }

  #rowElement(index: number): HTMLElement {
    const row = this.#pages.row(index);
    const cells = COLUMNS.map(({ name, number, content }) =>
      el(
        "div",
        { role: "gridcell", class: `cell c-${name}${number ? " number" : ""}` },
        row === undefined ? (name === "run_id" ? "…" : null) : content(row),
      ),
    );
    const shade = index % 2 === 1 ? " odd" : "";
    return el(
      "div",
      { role: "row", id: `row-${index}`, class: `run-row${shade}`, "aria-rowindex": index + 2, "data-index": index },
      ...cells,
    );
  }

  #showActive(): void {
    for (const [index, element] of this.#elements) {
      element.setAttribute("aria-selected", String(index === this.#active));
    }
    if (this.#elements.has(this.#active)) this.element.setAttribute("aria-activedescendant", `row-${this.#active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #activate(index: number): void {
    const total = this.#total ?? 0;
    this.#active = Math.min(Math.max(index, 0), Math.max(total - 1, 0));
    const top = this.#active * this.#rowHeight;
    const view = this.#scroller.viewHeight;
    if (top < this.#scroller.top) this.#scroller.scrollTo(top);
    else if (top + this.#rowHeight > this.#scroller.top + view) this.#scroller.scrollTo(top + this.#rowHeight - view);
    else this.#showActive();
  }

  #open(index: number): void {
    const row = this.#pages.row(index);
    if (row === undefined) return;
    this.#active = index;
    this.#options.onOpen(row);
  }

  #pressed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target !== this.element) return;
    const page = Math.max(Math.floor(this.#scroller.viewHeight / this.#rowHeight) - 1, 1);
    const actions: Record<string, () => void> = {
      ArrowDown: () => this.#activate(this.#active + 1),
      ArrowUp: () => this.#activate(this.#active - 1),
      j: () => this.#activate(this.#active + 1),
      k: () => this.#activate(this.#active - 1),
      PageDown: () => this.#activate(this.#active + page),
      PageUp: () => this.#activate(this.#active - page),
      Home: () => this.#activate(0),
      End: () => this.#activate(Number.POSITIVE_INFINITY),
      Enter: () => this.#open(this.#active),
    };
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }

  #clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target : null;
    const row = target?.closest<HTMLElement>(".run-row");
    // The browser follows the link itself, also into a new tab.
    if (!row || target?.closest("a") || getSelection()?.isCollapsed === false) return;
    this.#open(Number(row.dataset["index"]));
  }
}

export function viewText(first: number, last: number, total: number): string {
  if (total === 0) return "";
  const end = Math.max(last, Math.min(first + 1, total));
  return `${formatNumber(Math.min(first + 1, end))} to ${formatNumber(end)} of ${formatNumber(total)}`;
}
