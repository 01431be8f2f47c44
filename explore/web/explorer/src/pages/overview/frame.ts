// The frame with the report. A new report replaces the old one after it is drawn.

import { el } from "../../dom";

/** The longest wait for a new report to be as high as the old scroll position, in milliseconds. */
const DRAW_MS = 1500;

export class ReportFrame {
  readonly element = el("div", { class: "report-frames" });
  #frame: HTMLIFrameElement | null = null;
  #next: HTMLIFrameElement | null = null;

  get isEmpty(): boolean {
    return this.#frame === null;
  }

  /** Loads a report behind the shown one, and shows it at the same scroll position. */
  show(url: string, keepsPosition: boolean): void {
    this.#next?.remove();
    const frame = el("iframe", { src: url, title: "Report of the archive", class: "coming" });
    this.#next = frame;
    frame.addEventListener("load", () => {
      if (frame === this.#next) void this.#exchange(frame, keepsPosition);
    });
    this.element.append(frame);
  }

  /** Gives the report the theme of the page. */
  applyTheme(): void {
    for (const frame of [this.#frame, this.#next]) {
      const root = frame?.contentDocument?.documentElement;
      if (root) root.style.colorScheme = document.documentElement.style.colorScheme;
    }
  }

  async #exchange(frame: HTMLIFrameElement, keepsPosition: boolean): Promise<void> {
    this.applyTheme();
    // The page around the report has this button.
    frame.contentDocument?.querySelector(".theme")?.setAttribute("hidden", "");
    const top = this.#frame?.contentWindow?.scrollY ?? 0;
    if (keepsPosition && top > 0) await scrollOnceDrawn(frame, top);
    if (frame !== this.#next) return;
    this.#next = null;
    this.#frame?.remove();
    this.#frame = frame;
    frame.classList.remove("coming");
  }

  /** Shows nothing. */
  clear(): void {
    this.#frame = null;
    this.#next = null;
    this.element.replaceChildren();
  }
}

/** Scrolls a report as soon as it is high enough: its charts draw after its load event. */
async function scrollOnceDrawn(frame: HTMLIFrameElement, top: number): Promise<void> {
  const end = performance.now() + DRAW_MS;
  while (performance.now() < end) {
    frame.contentWindow?.scrollTo({ top, behavior: "instant" });
    if (Math.abs((frame.contentWindow?.scrollY ?? 0) - top) < 2) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
