// The replay of a run.

import { errorText, isAbort } from "../../api/client";
import type { Context } from "../../context";
import { el } from "../../dom";
import type { Mounted, Page, Route } from "../../router";
import { runRoute } from "../../router";
import { Game } from "./game";
import { ReplayView } from "./view";

const LAST_RUN = "last-run";

export const replayPage: Page = { title: "Replay", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  const controller = new AbortController();
  const runId = runOf(route);
  let view: ReplayView | null = null;
  let hasFailed = false;
  const problem = el("div");
  root.append(el("h1", {}, runId === null ? "Replay" : `Run ${runId}`), problem);

  const show = (): void => void (runId === null ? goToSomeRun() : load(runId));
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
      if (best === undefined) root.append(el("p", {}, "The archive has no runs."));
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
      view.start(route);
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
