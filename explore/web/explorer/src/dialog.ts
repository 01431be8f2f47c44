// Modal dialogs.

import type { Child } from "./dom";
import { el } from "./dom";

/** Shows a modal dialog. The browser keeps the focus inside, closes it with Escape and gives the focus back. */
export function showDialog(title: string, ...content: Child[]): HTMLDialogElement {
  const close = el("button", { type: "button", class: "close", "aria-label": "Close" }, "✕");
  const dialog = el(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    el("header", {}, el("h2", { id: "dialog-title" }, title), close),
    ...content,
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
