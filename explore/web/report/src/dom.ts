// Building elements. Texts become text nodes, so markup in names of engines and files has no effect.

export type Child = Node | string | null | undefined | false;

/** Creates an element. `class` and `aria-…` are attributes; a function is a listener, such as `onclick`. */
export function el<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Record<string, string | number | boolean | null | ((event: Event) => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[Name] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.replace(/^on/, ""), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

export function append(parent: Node, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
  }
}

/** Creates an SVG element. */
export function svg(name: string, attributes: Record<string, string | number>, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  append(element, ...children);
  return element;
}

/** A button that copies a text and confirms it. For screen readers, `what` distinguishes several buttons. */
export function copyButton(label: string, what: string | null, content: () => string): HTMLButtonElement {
  const name = what === null ? null : `${label}: ${what}`;
  const button = el("button", { type: "button", class: "copy", "aria-label": name }, label);
  button.addEventListener("click", () => {
    void copyText(content()).then((copied) => {
      button.textContent = copied ? "Copied" : "Copying failed";
      announce(copied ? "Copied" : "Copying failed");
      setTimeout(() => {
        button.textContent = label;
      }, 1500);
    });
  });
  return button;
}

/** Copies a text. Some browsers give pages in files no clipboard. The fallback is a selection. */
async function copyText(content: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    const area = el("textarea", { class: "offscreen", "aria-hidden": "true", tabindex: -1 });
    const focused = document.activeElement;
    area.value = content;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
    return copied;
  }
}

/** Tells screen readers a short message. */
function announce(message: string): void {
  const status = document.getElementById("status");
  if (status !== null) status.textContent = message;
}
