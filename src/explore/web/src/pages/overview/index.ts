// The report of the archive, which follows new versions.

import { errorText, isAbort } from "../../api/client";
import type { ReportState } from "../../api/types";
import type { Context } from "../../context";
import { announce, el } from "../../dom";
import { formatNumber, formatSeconds } from "../../format";
import type { Mounted, Page, Route } from "../../router";
import type { Choice } from "./choice";
import { choiceOf, hashOf } from "./choice";
import { ReportForm } from "./form";
import { ReportFrame } from "./frame";
import { followVersions } from "./news";

const POLL_MS = 300;

export const overviewPage: Page = { title: "Overview", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  const page = new Overview(context);
  root.append(...page.elements);
  page.open(choiceOf(route));
  return {
    update(next) {
      page.open(choiceOf(next));
      return true;
    },
    leave: () => page.leave(),
  };
}

class Overview {
  readonly elements: HTMLElement[];
  readonly #context: Context;
  readonly #form: ReportForm;
  readonly #frame: ReportFrame;
  readonly #facts = el("p", { class: "hint report-facts" });
  readonly #bar = el("progress", { "aria-label": "Queries of the report" });
  readonly #text = el("span");
  readonly #progress = el("div", { class: "report-progress", hidden: true }, this.#bar, this.#text);
  readonly #error = el("div", { class: "report-error", role: "alert", hidden: true });
  readonly #stopNews: () => void;
  #choice: Choice = { where: "", by: "engine", compare: null };
  #request: AbortController | null = null;
  /** The version of the shown report; null if no report of this choice is shown. */
  #shown: number | null = null;

  constructor(context: Context) {
    this.#context = context;
    this.#frame = new ReportFrame();
    this.#form = new ReportForm(context.archive, (choice) => this.#choose(choice));
    this.elements = [
      el("div", { class: "report-title" }, el("h1", {}, "Overview"), this.#facts),
      this.#form.element,
      this.#progress,
      this.#error,
      this.#frame.element,
    ];
    context.onAppearance(() => this.#frame.applyTheme());
    this.#stopNews = followVersions((version) => this.#onVersion(version));
  }

  leave(): void {
    this.#stopNews();
    this.#request?.abort();
    this.#frame.clear();
  }

  /** Shows the report of an address. */
  open(choice: Choice): void {
    this.#choice = choice;
    this.#shown = null;
    this.#form.set(choice);
    void this.#compute(false);
  }

  #choose(choice: Choice): void {
    if (hashOf(choice) === hashOf(this.#choice)) void this.#compute(false);
    else this.#context.navigate(hashOf(choice));
  }

  #onVersion(version: number): void {
    if (this.#shown === null || version === this.#shown) return;
    announce(`The archive has version ${version}. The report is computed again.`);
    void this.#compute(false);
  }

  /** Asks for the report until it is ready. A shown report stays until then. */
  async #compute(restart: boolean): Promise<void> {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.#error.hidden = true;
    try {
      let state = await this.#ask(restart, request.signal);
      while (state.state === "running") {
        this.#showProgress(state.done, state.total);
        await pause(POLL_MS);
        state = await this.#ask(false, request.signal);
      }
      if (state.state === "failed") this.#fail(state.error);
      else this.#show(state);
    } catch (error) {
      if (!isAbort(error)) this.#fail(errorText(error));
    } finally {
      if (this.#request === request) this.#progress.hidden = true;
    }
  }

  async #ask(restart: boolean, signal: AbortSignal): Promise<ReportState> {
    signal.throwIfAborted();
    return this.#context.api.report({ ...this.#choice, restart }, signal);
  }

  #showProgress(done: number, total: number): void {
    const isUpdate = this.#shown !== null;
    this.#bar.max = total;
    this.#bar.value = done;
    this.#text.textContent =
      (isUpdate ? "The archive has a new version. Computing its report: " : "Computing the report: ") +
      `${done} of ${total} queries`;
    this.#progress.hidden = false;
  }

  #show({ version, url, seconds }: Extract<ReportState, { state: "ready" }>): void {
    const isUpdate = this.#shown !== null;
    if (this.#shown === version && !this.#frame.isEmpty) return;
    this.#shown = version;
    this.#facts.textContent = `Version ${formatNumber(version)}, computed in ${formatSeconds(seconds)}`;
    this.#frame.show(url, isUpdate);
    announce(isUpdate ? `The report of version ${version} is shown.` : "The report is ready.");
  }

  #fail(message: string): void {
    const again = el("button", { type: "button" }, "Compute again");
    again.addEventListener("click", () => void this.#compute(true));
    this.#error.replaceChildren(el("p", { class: "error" }, message), again);
    this.#error.hidden = false;
    if (this.#shown === null) {
      this.#facts.textContent = "";
      this.#frame.clear();
    }
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
