// Keys of the page, and the dialog that lists them.

import type { Shortcut } from "./context";
import { showDialog } from "./dialog";
import { el } from "./dom";

const TYPING =
  "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable=true]";

/** Calls the shortcut of a key, unless the reader types into a field or a dialog is open. */
export function listenToKeys(shortcuts: () => Shortcut[]): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest(TYPING) || document.querySelector("dialog[open]")) return;
    if (event.key.startsWith("Arrow") && target?.matches(".scroll") && target.scrollWidth > target.clientWidth) return;
    // Space and Enter press the focused control.
    if ((event.key === " " || event.key === "Enter") && target?.closest("button, a, summary, input")) return;
    const shortcut = shortcuts().find(({ keys }) => keys.includes(event.key));
    if (shortcut !== undefined && shortcut.run(event) !== false) event.preventDefault();
  });
}

export function showKeys(groups: [string, Shortcut[]][]): void {
  showDialog(
    "Keys",
    ...groups
      .filter(([, shortcuts]) => shortcuts.length > 0)
      .flatMap(([title, shortcuts]) => [el("h3", {}, title), keyList(shortcuts)]),
  );
}

function keyList(shortcuts: Shortcut[]): HTMLElement {
  return el(
    "dl",
    { class: "keys" },
    ...shortcuts.map(({ keys, label, doc }) =>
      el(
        "div",
        {},
        el("dt", {}, ...(label ?? keys.map(keyName).join(" ")).split(" ").map((key) => el("kbd", {}, key))),
        el("dd", {}, doc),
      ),
    ),
  );
}

function keyName(key: string): string {
  return { " ": "Space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" }[key] ?? key;
}
