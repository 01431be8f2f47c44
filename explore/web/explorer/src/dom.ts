// Building elements, as the page of the report does.

import { el } from "../../report/src/dom";

export type { Child } from "../../report/src/dom";
export { append, copyButton, el, svg } from "../../report/src/dom";

/** Tells screen readers a short message. */
export function announce(message: string): void {
  const status = document.getElementById("status");
  if (status !== null) status.textContent = message;
}

/** A frame that shows a sign at its right edge while the content of `scroll` goes on there. */
export function scrollFrame(scroll: HTMLElement, content: HTMLElement): HTMLElement {
  const frame = el("div", { class: "scroll-frame" }, scroll);
  const update = (): void => {
    frame.classList.toggle("has-more", scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
  };
  scroll.addEventListener("scroll", update, { passive: true });
  const sizes = new ResizeObserver(update);
  sizes.observe(scroll);
  sizes.observe(content);
  return frame;
}

/** Runs `action` once the calls have stopped for `milliseconds`. */
export function debounce(milliseconds: number, action: () => void): { (): void; cancel(): void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const call = (): void => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
  call.cancel = (): void => clearTimeout(timer);
  return call;
}
