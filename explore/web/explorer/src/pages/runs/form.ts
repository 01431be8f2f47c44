// The form that narrows the list of runs.

import type { RunFilter } from "../../api/types";
import { debounce, el } from "../../dom";
import { NO_ENGINE } from "../../format";
import type { RunQuery } from "./query";
import { countConditions, RANGES } from "./query";

type Narrowing = Pick<RunQuery, "filter" | "where">;

const TILES = Array.from({ length: 16 }, (_, index) => 2 ** (index + 1));
const WHERE_HELP = "For example: max_score > 20000 AND engine LIKE 'a%'. Press Enter to apply.";

export class RunForm {
  readonly element: HTMLElement;
  readonly where: HTMLTextAreaElement;
  readonly #change: (narrowing: Narrowing, field: string) => void;
  readonly #engineChoice = el("fieldset", { class: "engine-choice" });
  #engines: [string | null, HTMLInputElement][] = [];
  readonly #ranges = new Map<(typeof RANGES)[number], HTMLInputElement | HTMLSelectElement>();
  readonly #error = el("p", { class: "error", id: "where-error", role: "alert", hidden: true });
  readonly #summary = el("summary", {}, "Filters");

  /** Calls `change` with the name of the changed field. */
  constructor(engines: (string | null)[], change: (narrowing: Narrowing, field: string) => void) {
    this.#change = change;
    this.setEngines(engines);
    this.where = el("textarea", {
      id: "where",
      rows: 3,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      class: "mono",
      "aria-describedby": "where-help where-error",
    });
    const clear = el("button", { type: "button" }, "Clear all");
    const form = el(
      "form",
      { class: "filters" },
      this.#engineChoice,
      range("Score", this.#number("min_score", "Least score"), this.#number("max_score", "Greatest score")),
      range("Steps", this.#number("min_steps", "Fewest steps"), this.#number("max_steps", "Most steps")),
      range("Largest tile", this.#tile("min_tile", "Smallest"), this.#tile("max_tile", "Largest")),
      el("label", { class: "field" }, "Run ", this.#number("run_id", "Run", "id")),
      el(
        "div",
        { class: "field" },
        el("label", { for: "where" }, "Condition in SQL"),
        this.where,
        this.#error,
        el("p", { class: "hint", id: "where-help" }, WHERE_HELP),
      ),
      clear,
    );
    const details = el("details", { class: "filter-panel", open: matchMedia("(min-width: 900px)").matches });
    details.append(this.#summary, form);
    this.element = details;
    this.#listen(form);
    clear.addEventListener("click", () => {
      this.set({ filter: {}, where: "" });
      this.#send("clear");
    });
  }

  /** Sets the engines to choose from. `set` then checks the chosen ones. */
  setEngines(engines: (string | null)[]): void {
    this.#engines = engines.map((engine) => [engine, el("input", { type: "checkbox" })]);
    this.#engineChoice.replaceChildren(
      el("legend", {}, "Engines"),
      ...this.#engines.map(([engine, box]) =>
        el("label", {}, box, engine === null ? el("span", { class: "null" }, NO_ENGINE) : el("span", {}, engine)),
      ),
    );
  }

  /** Fills the fields. A field that has the focus keeps what the reader types. */
  set({ filter, where }: Narrowing): void {
    for (const [engine, box] of this.#engines) box.checked = filter.engines?.includes(engine) ?? false;
    for (const [name, field] of this.#ranges) {
      const text = String(filter[name] ?? "");
      if (field.value !== text && (field !== document.activeElement || text === "")) field.value = text;
    }
    if (this.where !== document.activeElement || where === "") this.where.value = where;
    const conditions = countConditions({ filter, where, sort: "", descending: false });
    this.#summary.textContent = conditions === 0 ? "Filters" : `Filters (${conditions})`;
  }

  setError(message: string | null): void {
    this.#error.hidden = message === null;
    this.#error.textContent = message ?? "";
    if (message === null) this.where.removeAttribute("aria-invalid");
    else this.where.setAttribute("aria-invalid", "true");
  }

  #listen(form: HTMLFormElement): void {
    let field = "";
    const send = (): void => this.#send(field);
    const later = debounce(350, send);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      later.cancel();
      send();
    });
    form.addEventListener("input", (event) => {
      if (event.target === this.where) return;
      field = event.target instanceof Element ? (event.target.getAttribute("name") ?? "engines") : "";
      if (event.target instanceof HTMLInputElement && event.target.type === "number") later();
      else send();
    });
    this.where.addEventListener("change", () => this.#send("where"));
    this.where.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send("where");
    });
  }

  #send(field: string): void {
    const filter: RunFilter = {};
    const engines = this.#engines.filter(([, box]) => box.checked).map(([engine]) => engine);
    if (engines.length > 0) filter.engines = engines;
    for (const [name, { value, validity }] of this.#ranges) {
      if (value !== "" && validity.valid) filter[name] = Number(value);
    }
    this.#change({ filter, where: this.where.value.trim() }, field);
  }

  #number(name: (typeof RANGES)[number], label: string, placeholder = ""): HTMLInputElement {
    const hint = placeholder === "" ? (name.startsWith("min") ? "from" : "to") : placeholder;
    const field = el("input", {
      type: "number",
      name,
      min: 0,
      step: 1,
      inputmode: "numeric",
      "aria-label": label,
      placeholder: hint,
    });
    this.#ranges.set(name, field);
    return field;
  }

  #tile(name: "min_tile" | "max_tile", label: string): HTMLSelectElement {
    const field = el(
      "select",
      { name, "aria-label": `${label} value of the largest tile` },
      el("option", { value: "" }, name === "min_tile" ? "from" : "to"),
      ...TILES.map((tile) => el("option", { value: tile }, String(tile))),
    );
    this.#ranges.set(name, field);
    return field;
  }
}

function range(label: string, low: HTMLElement, high: HTMLElement): HTMLElement {
  return el("fieldset", { class: "field range" }, el("legend", {}, label), low, high);
}
