// The form that chooses a report.

import type { Archive } from "../../api/types";
import { el } from "../../dom";
import type { Choice } from "./choice";
import { GROUPS } from "./choice";

const WHERE_HELP = "For example: max_score > 20000 AND num_steps > 500";

export class ReportForm {
  readonly element: HTMLFormElement;
  readonly #archive: Archive;
  readonly #where = el("input", {
    id: "report-where",
    class: "mono",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "all runs",
    title: WHERE_HELP,
  });
  readonly #by = el("select", { id: "report-by" }, ...GROUPS.map((group) => el("option", { value: group }, group)));
  readonly #known = el("datalist", { id: "report-groups" });
  readonly #pair = ["First group", "Second group"].map((label) =>
    el("input", { "aria-label": label, placeholder: label.toLowerCase(), list: "report-groups", autocomplete: "off" }),
  );
  readonly #error = el("p", { class: "error", role: "alert", hidden: true });

  /** Calls `onChoose` when the reader asks for a report. */
  constructor(archive: Archive, onChoose: (choice: Choice) => void) {
    this.#archive = archive;
    this.element = el(
      "form",
      { class: "report-form" },
      el(
        "div",
        { class: "report-where" },
        el("label", { for: "report-where" }, "Condition on runs (SQL)"),
        this.#where,
      ),
      el("div", {}, el("label", { for: "report-by" }, "Groups"), this.#by),
      el(
        "fieldset",
        {},
        el("legend", {}, "Compare only two groups"),
        el("div", { class: "report-pair" }, ...this.#pair, this.#known),
      ),
      el("button", { type: "submit", class: "primary" }, "Show"),
      this.#error,
    );
    this.#by.addEventListener("change", () => this.#showKnown());
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      const choice = this.#read();
      if (choice !== null) onChoose(choice);
    });
  }

  set({ where, by, compare }: Choice): void {
    this.#where.value = where;
    this.#by.value = by;
    this.#pair.forEach((field, index) => (field.value = compare?.[index] ?? ""));
    this.#showKnown();
    this.#showError(null);
  }

  #read(): Choice | null {
    const [first = "", second = ""] = this.#pair.map(({ value }) => value.trim());
    const isHalf = (first === "") !== (second === "");
    const isSame = first !== "" && first === second;
    this.#showError(isHalf ? "Name both groups, or none." : isSame ? "Name two different groups." : null);
    if (isHalf || isSame) return null;
    const by = GROUPS.find((group) => group === this.#by.value) ?? "engine";
    return { where: this.#where.value.trim(), by, compare: first === "" ? null : [first, second] };
  }

  #showError(message: string | null): void {
    this.#error.hidden = message === null;
    this.#error.textContent = message;
    for (const field of this.#pair) {
      if (message === null) field.removeAttribute("aria-invalid");
      else field.setAttribute("aria-invalid", "true");
    }
  }

  /** Offers the names of the groups that the page knows. */
  #showKnown(): void {
    const { engines, version } = this.#archive;
    const versions = Array.from({ length: Math.min(version, 200) }, (_, index) => String(version - index));
    const names = { engine: engines.filter((engine) => engine !== null), version: versions, format: [], session: [] };
    const known = names[this.#by.value as keyof typeof names] ?? [];
    this.#known.replaceChildren(...known.map((value) => el("option", { value })));
  }
}
