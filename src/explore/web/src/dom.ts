// Building elements, as the page of the report does.

export type { Child } from "../../../report/web/src/dom";
export { append, copyButton, el, svg } from "../../../report/web/src/dom";

/** Tells screen readers a short message. */
export function announce(message: string): void {
  const status = document.getElementById("status");
  if (status !== null) status.textContent = message;
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
