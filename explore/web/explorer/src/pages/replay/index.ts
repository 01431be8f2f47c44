// The replay of a run.

import { errorText, isAbort } from "../../api/client";
import type { Context } from "../../context";
import { el } from "../../dom";
import type { Mounted, Page, Route } from "../../router";
import { runRoute } from "../../router";
import { NO_RUNS } from "../runs/columns";
import { Game } from "./game";
import { ReplayView } from "./view";

const LAST_RUN = "last-run";

export const replayPage: Page = { title: "Replay", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  const controller = new AbortController();
  const runId = runOf(route);
  const asked = route.path[1];
  let view: ReplayView | null = null;
  let hasFailed = false;
  const problem = el("div");
  root.append(el("h1", {}, asked === undefined ? "Replay" : `Run ${asked}`), problem);

  const show = (): void => {
    if (runId !== null) void load(runId);
    else if (asked === undefined) void goToSomeRun();
    else fail(new Error(`There is no run ${asked}: expected the number of a run.`));
  };
  show();
  const stopListening = context.api.onConnection((connection) => {
    if (connection === "online" && hasFailed) show();
  });

  /** Without a run in the address, shows the last one, or else the one with the best score. */
  async function goToSomeRun(): Promise<void> {
    const key = `${LAST_RUN}:${context.archive.path}`;
    const last = Number(context.settings.get(key) ?? "NaN");
    if (last < context.archive.num_runs) {
      location.replace(runRoute(last));
      return;
    }
    try {
      const query = { filter: {}, where: "", sort: "max_score", descending: true, offset: 0, limit: 1 };
      const best = (await context.api.runs(query, controller.signal)).rows[0];
      if (best === undefined) root.append(el("p", {}, NO_RUNS));
      else location.replace(runRoute(best.run_id));
    } catch (error) {
      fail(error);
    }
  }

  async function load(id: number): Promise<void> {
    const waiting = el("p", { class: "hint", role: "status" });
    hasFailed = false;
    problem.replaceChildren(waiting);
    const timer = setTimeout(() => {
      waiting.textContent = "The run is loading…";
    }, 200);
    try {
      const run = await context.api.run(id, controller.signal);
      if (run.positions.board.length === 0) throw new Error("This run has no positions.");
      context.settings.set(`${LAST_RUN}:${context.archive.path}`, String(id));
      context.setTitle(`Run ${id}`);
      const hadFocus = root.querySelector("h1") === document.activeElement;
      root.replaceChildren();
      view = new ReplayView(new Game(run), context);
      root.append(view.element);
      view.follow(route);
      if (hadFocus) view.focusHeading();
    } catch (error) {
      fail(error);
    } finally {
      clearTimeout(timer);
      waiting.remove();
    }
  }

  function fail(error: unknown): void {
    if (isAbort(error)) return;
    hasFailed = true;
    problem.replaceChildren(
      el("p", { class: "error", role: "alert" }, errorText(error)),
      el("p", {}, el("a", { href: "#/runs" }, "All runs")),
    );
  }

  return {
    update(next) {
      if (view === null || runOf(next) !== runId) return false;
      view.follow(next);
      return true;
    },
    leave() {
      controller.abort();
      stopListening();
      view?.leave();
    },
  };
}

function runOf(route: Route): number | null {
  const text = route.path[1] ?? "";
  return /^\d{1,10}$/.test(text) ? Number(text) : null;
}
