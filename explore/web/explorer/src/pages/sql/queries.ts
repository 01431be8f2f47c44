// The list of named queries, each with its purpose, its parameters and its SQL.

import type { Params, Schema } from "../../api/types";
import type { Context } from "../../context";
import { el } from "../../dom";
import { ParameterForm } from "./parameters";
import { prose } from "./prose";
import { parametersOf } from "./statement";

type NamedQuery = Schema["queries"][number];

interface QueryListOptions {
  run(name: string, params: Params, texts: Record<string, string>): void;
  /** Copies a query's SQL into the editor, with the texts of its parameters. */
  edit(sql: string, texts: Record<string, string>): void;
  fail(error: unknown): void;
}

export class QueryList {
  readonly element = el("div", { class: "query-list" });
  readonly #items = new Map<string, QueryItem>();

  constructor(context: Context, queries: NamedQuery[], options: QueryListOptions) {
    const find = el("input", { type: "search", placeholder: "Find", "aria-label": "Find a named query" });
    const none = el("p", { class: "hint", hidden: true }, "No query has these words. Try fewer, or other ones.");
    for (const query of queries) this.#items.set(query.name, new QueryItem(context, query, options));
    find.addEventListener("input", () => {
      const words = find.value.toLowerCase().split(/\s+/);
      let found = 0;
      for (const item of this.#items.values()) {
        const isShown = words.every((word) => item.words.includes(word));
        item.element.hidden = !isShown;
        found += Number(isShown);
      }
      none.hidden = found > 0;
    });
    this.element.append(find, ...[...this.#items.values()].map(({ element }) => element), none);
  }

  /** Opens a query with the given texts of its parameters. Returns their values; null if there is no such query. */
  open(name: string, texts: Record<string, string>): Params | null {
    return this.#items.get(name)?.open(texts) ?? null;
  }
}

class QueryItem {
  readonly element: HTMLDetailsElement;
  /** The text that the search reads. */
  readonly words: string;
  readonly #context: Context;
  readonly #query: NamedQuery;
  readonly #options: QueryListOptions;
  #form: ParameterForm | null = null;

  constructor(context: Context, query: NamedQuery, options: QueryListOptions) {
    this.#context = context;
    this.#query = query;
    this.#options = options;
    this.words = `${query.name.replaceAll("_", " ")} ${query.name} ${query.purpose}`.toLowerCase();
    this.element = el("details", { class: "query" }, el("summary", {}, el("code", {}, query.name)));
    this.element.addEventListener("toggle", () => {
      if (this.element.open) this.#fill();
    });
  }

  open(texts: Record<string, string>): Params {
    this.element.open = true;
    const form = this.#fill();
    form.show(parametersOf(this.#query.sql), texts);
    this.#scrollIntoList();
    return form.values(false);
  }

  /** Scrolls the list, but not the page, so that the query is in view. */
  #scrollIntoList(): void {
    const list = this.element.closest(".panel-content");
    if (list === null) return;
    const [own, visible] = [this.element.getBoundingClientRect(), list.getBoundingClientRect()];
    if (own.top < visible.top || own.bottom > visible.bottom) list.scrollTop += own.top - visible.top - 4;
  }

  #fill(): ParameterForm {
    if (this.#form !== null) return this.#form;
    const { name, purpose, sql } = this.#query;
    const parameterForm = new ParameterForm(this.#context);
    this.#form = parameterForm;
    parameterForm.show(parametersOf(sql));
    const edit = el("button", { type: "button" }, "Edit its SQL");
    edit.title = "Copy the SQL into the editor";
    edit.addEventListener("click", () => this.#options.edit(sql, parameterForm.texts()));
    const form = el(
      "form",
      {},
      el("p", {}, ...prose(purpose)),
      parameterForm.element,
      el(
        "div",
        { class: "query-tools" },
        el("button", { type: "submit", class: "primary", "aria-label": `Run ${name}` }, "Run"),
        edit,
      ),
      el("details", {}, el("summary", {}, "SQL"), el("pre", { tabindex: 0 }, sql.trimEnd())),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        this.#options.run(name, parameterForm.values(false), parameterForm.texts());
      } catch (error) {
        this.#options.fail(error);
      }
    });
    this.element.append(form);
    return parameterForm;
  }
}
