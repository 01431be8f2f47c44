// SQL over the archive: an editor, the named queries, and results as tables and charts.

import { errorText, isAbort } from "../../api/client";
import type { Params, Schema } from "../../api/types";
import type { Context } from "../../context";
import { announce, el } from "../../dom";
import { count } from "../../format";
import type { Mounted, Page, Route } from "../../router";
import { SqlEditor } from "./editor";
import { StatementHistory } from "./history";
import { ParameterForm } from "./parameters";
import { QueryList } from "./queries";
import { ResultView } from "./result";
import type { Query, Source } from "./source";
import { hashOf, queryOf, run } from "./source";
import { parametersOf } from "./statement";
import { functionList, tableList } from "./tables";

const FIRST_ROWS = 1000;
const EXAMPLE = `-- The best runs of each engine.
SELECT engine, count(*) AS num_runs, avg(max_score) AS mean_score, max(max_score) AS best_score
FROM runs
GROUP BY engine
ORDER BY mean_score DESC`;
const DRAFT = "sql-draft";

export const sqlPage: Page = { title: "SQL", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  const page = new SqlPage(context);
  root.append(...page.elements);
  page.open(route);
  return {
    update(next) {
      page.open(next);
      return true;
    },
    leave: () => page.leave(),
  };
}

class SqlPage {
  readonly elements: HTMLElement[];
  readonly #context: Context;
  readonly #editor: SqlEditor;
  readonly #parameters: ParameterForm;
  readonly #history: StatementHistory;
  readonly #run = el("button", { type: "button", class: "primary", title: "Ctrl + Enter" }, "Run");
  readonly #cancel = el("button", { type: "button", hidden: true }, "Cancel");
  readonly #progress = el("span", { class: "hint progress" });
  readonly #error = el("div", { class: "sql-error", role: "alert", hidden: true });
  readonly #output = el(
    "div",
    { class: "sql-output" },
    el("p", { class: "hint" }, "Run the statement, or choose a named query. Its rows appear here."),
  );
  readonly #queriesPanel = panel("Named queries", true);
  readonly #tablesPanel = panel("Tables", false);
  readonly #functionsPanel = panel("Functions", false);
  #queries: QueryList | null = null;
  #result: ResultView | null = null;
  #request: AbortController | null = null;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #loading = new AbortController();
  /** The address of the shown query. */
  #shown = "";

  constructor(context: Context) {
    this.#context = context;
    this.#parameters = new ParameterForm(context);
    const draft = context.settings.get(DRAFT);
    this.#editor = new SqlEditor(
      draft === null || draft === "" ? EXAMPLE : draft,
      () => this.#runEditor(),
      () => this.#edited(),
    );
    this.#history = new StatementHistory(context.settings, (sql) => this.#load(sql, {}));
    this.#run.addEventListener("click", () => this.#runEditor());
    this.#cancel.addEventListener("click", () => {
      this.#stop();
      this.#progress.textContent = "Cancelled";
    });
    const history = panel("History", false);
    history.content.append(this.#history.element);
    this.elements = [
      el("h1", {}, "SQL"),
      el(
        "div",
        { class: "sql-layout" },
        el(
          "aside",
          { class: "sql-side", "aria-label": "Named queries, tables and history" },
          this.#queriesPanel.element,
          this.#tablesPanel.element,
          this.#functionsPanel.element,
          history.element,
        ),
        el(
          "div",
          { class: "sql-main" },
          this.#editor.element,
          this.#parameters.element,
          el(
            "div",
            { class: "sql-tools" },
            this.#run,
            this.#cancel,
            el("span", { class: "hint" }, el("kbd", {}, "Ctrl"), " + ", el("kbd", {}, "Enter")),
            this.#progress,
          ),
          this.#error,
          this.#output,
        ),
      ),
    ];
    context.setShortcuts([
      { keys: ["/", "e"], doc: "Go to the editor", run: () => this.#editor.focus() },
      {
        keys: [],
        label: "Ctrl + Enter",
        doc: "In the editor: run the statement, or its selected part",
        run: () => false,
      },
      { keys: [], label: "Ctrl + Space", doc: "In the editor: complete a name", run: () => false },
    ]);
    this.#showParameters({});
    this.#ready = this.#loadSchema();
  }

  readonly #ready: Promise<void>;

  leave(): void {
    this.#stop();
    this.#loading.abort();
    this.#result?.leave();
    this.#editor.leave();
  }

  /** Shows and runs the query of an address. */
  open(route: Route): void {
    const query = queryOf(route);
    if (query === null || hashOf(query) === this.#shown) return;
    if ("sql" in query.source) {
      this.#load(query.source.sql, query.texts);
      this.#start(query, () => this.#parameters.values(true));
      return;
    }
    const { name } = query.source;
    void this.#ready.then(() => {
      this.#start(query, () => {
        const params = this.#queries?.open(name, query.texts) ?? null;
        if (params === null) throw new Error(`The archive has no query ${name}.`);
        return params;
      });
    });
  }

  async #loadSchema(): Promise<void> {
    try {
      const schema = await this.#context.api.schema(this.#loading.signal);
      this.#showSchema(schema);
    } catch (error) {
      if (!isAbort(error)) this.#fail(error);
    }
  }

  #showSchema(schema: Schema): void {
    this.#editor.setSchema(schema);
    this.#queries = new QueryList(this.#context, schema.queries, {
      run: (name, params, texts) => this.#start({ source: { name }, texts }, () => params, true),
      edit: (sql, texts) => {
        this.#load(sql, texts);
        this.#editor.focus();
      },
      fail: (error) => this.#fail(error),
    });
    const insert = (text: string): void => this.#editor.insert(text);
    this.#queriesPanel.content.append(this.#queries.element);
    this.#tablesPanel.content.append(tableList(schema, insert));
    this.#functionsPanel.content.append(functionList(schema, insert));
  }

  #load(sql: string, texts: Record<string, string>): void {
    this.#editor.text = sql;
    this.#showParameters(texts);
  }

  #edited(): void {
    this.#context.settings.set(DRAFT, this.#editor.text);
    this.#showParameters();
  }

  #showParameters(texts?: Record<string, string>): void {
    this.#parameters.show(parametersOf(this.#editor.text), texts);
  }

  #runEditor(): void {
    const { sql } = this.#editor.chosen;
    if (sql.trim() === "") return;
    this.#start({ source: { sql }, texts: this.#parameters.texts() }, () => this.#parameters.values(true));
  }

  /** Runs a query, and puts it into the address. */
  #start(query: Query, values: () => Params, isFar = false): void {
    this.#clearError();
    let params: Params;
    try {
      params = values();
    } catch (error) {
      this.#clearResult();
      this.#fail(error);
      return;
    }
    if ("sql" in query.source) {
      const used = new Set(parametersOf(query.source.sql).map(({ name }) => name));
      params = Object.fromEntries(Object.entries(params).filter(([name]) => used.has(name)));
    }
    this.#shown = hashOf(query);
    if (location.hash !== this.#shown) history.pushState(null, "", this.#shown);
    void this.#execute(query.source, params, Math.min(FIRST_ROWS, this.#context.archive.max_rows));
    // On narrow screens, the list of queries is above the result.
    if (isFar && this.#output.getBoundingClientRect().top > innerHeight) this.#output.scrollIntoView();
  }

  async #execute(source: Source, params: Params, limit: number): Promise<void> {
    this.#stop();
    this.#clearError();
    const request = new AbortController();
    this.#request = request;
    this.#showProgress();
    const chosen = this.#editor.chosen;
    try {
      const result = await run(this.#context, source, params, limit, request.signal);
      if ("sql" in source) this.#history.add({ sql: source.sql, rows: result.num_rows, seconds: result.seconds });
      this.#clearResult();
      const showMore = (most: number): void => void this.#execute(source, params, most);
      this.#result = new ResultView({ context: this.#context, result, source, params, limit, showMore });
      this.#output.replaceChildren(this.#result.element);
      announce(count(result.num_rows, "row"));
    } catch (error) {
      if (isAbort(error)) return;
      this.#clearResult();
      if ("sql" in source) {
        this.#history.add({ sql: source.sql, rows: null, seconds: null });
        this.#fail(error, chosen.sql === source.sql ? chosen : { sql: source.sql, offset: 0 });
      } else {
        this.#fail(error);
      }
    } finally {
      if (this.#request === request) this.#stop();
    }
  }

  /** Removes the shown result, whose downloads belong to an earlier statement. */
  #clearResult(): void {
    this.#result?.leave();
    this.#result = null;
    this.#output.replaceChildren();
  }

  #showProgress(): void {
    const started = performance.now();
    this.#cancel.hidden = false;
    this.#output.setAttribute("aria-busy", "true");
    this.#timer = setInterval(() => {
      const seconds = (performance.now() - started) / 1000;
      if (seconds > 0.3) this.#progress.textContent = `Running for ${seconds.toFixed(1)} s`;
    }, 100);
  }

  #stop(): void {
    this.#request?.abort();
    this.#request = null;
    clearInterval(this.#timer);
    this.#cancel.hidden = true;
    this.#progress.textContent = "";
    this.#output.removeAttribute("aria-busy");
  }

  #clearError(): void {
    this.#error.hidden = true;
    this.#editor.clearError();
  }

  /** Shows an error below the editor, and marks its place in the statement. */
  #fail(error: unknown, statement?: { sql: string; offset: number }): void {
    const message = errorText(error);
    const place = statement === undefined ? null : this.#editor.showError(message, statement);
    this.#error.replaceChildren(el("p", { class: "error" }, message));
    if (place !== null) {
      const button = el("button", { type: "button" }, `Go to line ${place.line}, column ${place.column}`);
      button.addEventListener("click", () => this.#editor.goTo(place));
      this.#error.append(button);
    }
    this.#error.hidden = false;
  }
}

interface Panel {
  element: HTMLElement;
  content: HTMLElement;
}

/** A panel of the side bar; at most one is open. On wide screens, the first one starts open. */
function panel(title: string, isFirst: boolean): Panel {
  const isOpen = isFirst && matchMedia("(min-width: 1000px)").matches;
  const content = el("div", { class: "panel-content" });
  const attributes = { class: "side-panel", name: "sql-side", open: isOpen };
  return { content, element: el("details", attributes, el("summary", {}, title), content) };
}
