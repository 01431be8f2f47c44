// The list of all runs.

import { ApiError, errorText } from "../../api/client";
import type { Runs } from "../../api/types";
import { announce, debounce, el } from "../../dom";
import { count, formatNumber, formatSeconds } from "../../format";
import type { Context } from "../../context";
import type { Mounted, Page, Route } from "../../router";
import { runRoute, sqlRoute } from "../../router";
import { COLUMNS, NO_RUNS } from "./columns";
import { RunForm } from "./form";
import type { ListPosition } from "./list";
import { RunList, viewText } from "./list";
import type { RunQuery } from "./query";
import { hashOf, queryOf, sqlOf } from "./query";

/** The place in the list that the reader left. The list opens there again. */
let left: { hash: string; position: ListPosition } | null = null;

export const runsPage: Page = { title: "Runs", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  let query: RunQuery = queryOf(route);
  let lastField = "";
  let asked = 0;
  const found = el("p", { class: "found" });
  const inSql = el("a", { class: "in-sql" }, "Query in SQL");
  const view = el("p", { class: "view-position hint" });
  const tell = debounce(500, () => announce(found.textContent));

  const form = new RunForm(context.archive.engines, (narrowing, field) => {
    const next = { ...query, ...narrowing };
    if (hashOf(next) === hashOf(query)) {
      if (field === "where") list.focus();
      return;
    }
    // Further typing in one field replaces the address, so that "back" undoes the whole change.
    go(next, field === lastField && field !== "engines");
    lastField = field;
  });

  const list = new RunList({
    load: (offset, limit, signal) => {
      asked = performance.now();
      return context.api.runs({ ...query, offset, limit }, signal);
    },
    onSort: (sort) => {
      // For numbers other than run IDs, the greatest ones come first.
      const first = sort !== "run_id" && COLUMNS.some(({ name, number }) => name === sort && number);
      go({ ...query, sort, descending: sort === query.sort ? !query.descending : first }, false);
    },
    onOpen: (row) => context.navigate(runRoute(row.run_id)),
    onAnswer: (runs) => answered(runs),
    onError: (error) => failed(error),
    onView: (first, last, total) => {
      view.textContent = viewText(first, last, total);
    },
  });

  function go(next: RunQuery, replace: boolean): void {
    const hash = hashOf(next);
    if (replace) {
      context.navigate(hash, { replace });
      show(next, null);
    } else {
      context.navigate(hash);
    }
  }

  function show(next: RunQuery, position: ListPosition | null): void {
    query = next;
    form.set(query);
    inSql.href = sqlRoute(sqlOf(query));
    form.setError(null);
    list.reload(query, position);
  }

  function answered({ total, seconds }: Runs): void {
    form.setError(null);
    const all = context.archive.num_runs;
    const text = total === all ? count(total, "run") : `${formatNumber(total)} of ${count(all, "run")}`;
    found.replaceChildren(
      el("strong", {}, text),
      el(
        "span",
        { class: "hint", title: `Including the transfer: ${formatSeconds((performance.now() - asked) / 1000)}` },
        ` in ${formatSeconds(seconds)}`,
      ),
    );
    if (total === 0)
      list.showEmpty(all === 0 ? NO_RUNS : "No run fulfils all conditions. Change or clear some of them.");
    tell();
  }

  function failed(error: unknown): void {
    // The banner reports a lost connection, and the rows stay.
    if (context.api.connection !== "online" && list.hasRows) return;
    const message = errorText(error);
    const isQuery = error instanceof ApiError && error.status >= 400 && error.status < 500 && query.where !== "";
    form.setError(isQuery ? message : null);
    found.textContent = "";
    list.showEmpty(isQuery ? "The condition has an error." : message);
    view.textContent = "";
  }

  root.append(
    el("div", { class: "runs-title" }, el("h1", {}, "Runs"), found, inSql, view),
    el("div", { class: "runs-layout" }, form.element, list.element),
  );
  context.setShortcuts([
    {
      keys: ["/"],
      doc: "Write a condition",
      run: () => {
        form.element.setAttribute("open", "");
        form.where.focus();
      },
    },
    { keys: ["."], doc: "Go to the list", run: () => list.focus() },
    { keys: [], label: "↑ ↓ j k", doc: "In the list: previous and next run", run: () => false },
    {
      keys: [],
      label: "PgUp PgDn Home End",
      doc: "In the list: previous and next page, first and last run",
      run: () => false,
    },
    { keys: [], label: "Enter", doc: "In the list: open the run", run: () => false },
  ]);
  context.onArchive(() => {
    form.setEngines(context.archive.engines);
    show(query, list.position);
  });
  // Loads the runs again after a lost connection.
  const stopListening = context.api.onConnection((connection) => {
    if (connection === "online") list.reload(query, list.position);
  });
  show(query, left?.hash === hashOf(query) ? left.position : null);

  return {
    update(next) {
      show(queryOf(next), null);
      return true;
    },
    leave() {
      left = { hash: hashOf(query), position: list.position };
      tell.cancel();
      stopListening();
      list.leave();
    },
  };
}
