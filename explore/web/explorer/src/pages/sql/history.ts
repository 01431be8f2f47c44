// The statements that the reader ran, which the browser stores.

import type { Settings } from "../../settings";
import { el } from "../../dom";
import { count, formatSeconds } from "../../format";
import { summaryOf } from "./statement";

interface Entry {
  sql: string;
  /** Milliseconds since 1970. */
  at: number;
  /** The number of rows, or null if the statement failed. */
  rows: number | null;
  seconds: number | null;
}

const KEY = "sql-history";
const MAX_ENTRIES = 100;
const MAX_CHARACTERS = 400_000;

export class StatementHistory {
  readonly element = el("div", { class: "sql-history" });
  readonly #settings: Settings;
  readonly #onChoose: (sql: string) => void;
  #entries: Entry[];

  constructor(settings: Settings, onChoose: (sql: string) => void) {
    this.#settings = settings;
    this.#onChoose = onChoose;
    this.#entries = read(settings.get(KEY));
    this.#draw();
  }

  /** The statement that ran last. */
  get last(): string | null {
    return this.#entries[0]?.sql ?? null;
  }

  add(entry: Omit<Entry, "at">): void {
    const others = this.#entries.filter(({ sql }) => sql !== entry.sql);
    let kept = [{ ...entry, at: Date.now() }, ...others].slice(0, MAX_ENTRIES);
    while (kept.length > 1 && JSON.stringify(kept).length > MAX_CHARACTERS) kept = kept.slice(0, -1);
    this.#save(kept);
  }

  #save(entries: Entry[]): void {
    this.#entries = entries;
    this.#settings.set(KEY, JSON.stringify(entries));
    this.#draw();
  }

  #draw(): void {
    if (this.#entries.length === 0) {
      this.element.replaceChildren(el("p", { class: "hint" }, "Statements that you run appear here."));
      return;
    }
    const clear = el("button", { type: "button" }, "Clear the history");
    clear.addEventListener("click", () => this.#save([]));
    this.element.replaceChildren(el("ol", {}, ...this.#entries.map((entry) => this.#item(entry))), clear);
  }

  #item({ sql, at, rows, seconds }: Entry): HTMLElement {
    const button = el(
      "button",
      { type: "button", class: "history-entry", title: "Copy into the editor" },
      el("code", {}, summaryOf(sql)),
      el(
        "span",
        { class: rows === null ? "error" : "hint" },
        [
          new Date(at).toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" }),
          rows === null ? "failed" : count(rows, "row"),
          seconds === null ? null : formatSeconds(seconds),
        ]
          .filter((part) => part !== null)
          .join(" · "),
      ),
    );
    button.addEventListener("click", () => this.#onChoose(sql));
    return el("li", {}, button);
  }
}

function read(text: string | null): Entry[] {
  try {
    const entries: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(entries) ? entries.filter((entry: Entry) => typeof entry?.sql === "string") : [];
  } catch {
    return [];
  }
}
