// The report of the archive.

import { errorText, isAbort } from "../../api/client";
import type { Report } from "../../api/types";
import type { Context } from "../../context";
import { announce, el } from "../../dom";
import { formatNumber, formatSeconds } from "../../format";
import type { Mounted, Page, Route } from "../../router";
import type { Choice } from "./choice";
import { choiceOf, hashOf } from "./choice";
import { ReportForm } from "./form";
import { ReportFrame } from "./frame";

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
  readonly #progress = el("p", { class: "report-progress", hidden: true }, "Computing the report …");
  readonly #error = el("div", { class: "report-error", role: "alert", hidden: true });
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
    context.onArchive(() => void this.#compute());
  }

  leave(): void {
    this.#request?.abort();
    this.#frame.clear();
  }

  /** Shows the report of an address. */
  open(choice: Choice): void {
    this.#choice = choice;
    this.#shown = null;
    this.#form.set(choice);
    void this.#compute();
  }

  #choose(choice: Choice): void {
    if (hashOf(choice) === hashOf(this.#choice)) void this.#compute();
    else this.#context.navigate(hashOf(choice));
  }

  /** Shows the report as soon as it is ready. A shown report stays until then. */
  async #compute(): Promise<void> {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    this.#error.hidden = true;
    this.#progress.hidden = false;
    try {
      this.#show(await this.#context.api.report(this.#choice, request.signal));
    } catch (error) {
      if (!isAbort(error)) this.#fail(errorText(error));
    } finally {
      if (this.#request === request) this.#progress.hidden = true;
    }
  }

  #show({ version, url, seconds }: Report): void {
    const isUpdate = this.#shown !== null;
    if (this.#shown === version && !this.#frame.isEmpty) return;
    this.#shown = version;
    this.#facts.textContent = `Version ${formatNumber(version)}, computed in ${formatSeconds(seconds)}`;
    this.#frame.show(url, isUpdate);
    announce(isUpdate ? `The report of version ${version} is shown.` : "The report is ready.");
  }

  #fail(message: string): void {
    const again = el("button", { type: "button" }, "Compute again");
    again.addEventListener("click", () => void this.#compute());
    this.#error.replaceChildren(el("p", { class: "error" }, message), again);
    this.#error.hidden = false;
    if (this.#shown === null) {
      this.#facts.textContent = "";
      this.#frame.clear();
    }
  }
}
