// The text of a mark beside the pointer, or beside the mark that has the focus.

import { el } from "./dom";

const tooltip = el("div", { class: "tooltip", "aria-hidden": "true" });
tooltip.hidden = true;

/**
 * Moves the texts of a chart's marks from `aria-label`, which only links and images may have, to `data-label`. Removes
 * their titles, for which browsers show slow tooltips.
 */
export function moveLabels(chart: Element): void {
  for (const title of chart.querySelectorAll("title")) title.remove();
  for (const labelled of chart.querySelectorAll("[aria-label]")) {
    const label = labelled.getAttribute("aria-label") ?? "";
    labelled.removeAttribute("aria-label");
    if (labelled instanceof SVGGElement) continue;
    labelled.setAttribute("data-label", label);
    if (labelled.parentElement instanceof SVGAElement) labelled.parentElement.setAttribute("aria-label", label);
  }
}

/**
 * Shows the text of the mark under the pointer, or of the mark with the focus. Takes the chart's container, because
 * Chromium makes an SVG element with a listener for the focus a stop of the Tab key.
 */
export function explainMarks(chart: HTMLElement): void {
  chart.addEventListener("pointermove", (event) => {
    // Charts with curves have their own text for the point that is nearest to the pointer.
    if (chart.querySelector('[aria-label="tip"] > *') !== null) hide();
    else if (event instanceof PointerEvent) show(event.target, event.clientX, event.clientY);
  });
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("focusin", (event) => {
    const box = event.target instanceof Element ? event.target.getBoundingClientRect() : null;
    if (box !== null) show(event.target, box.left + box.width / 2, box.top + box.height / 2);
  });
  chart.addEventListener("focusout", hide);
}

function hide(): void {
  tooltip.hidden = true;
}

function show(target: EventTarget | null, x: number, y: number): void {
  const mark = target instanceof SVGAElement ? target.firstElementChild : target;
  const label = (mark instanceof Element ? mark.getAttribute("data-label") : null) ?? "";
  if (label === "") {
    hide();
    return;
  }
  if (!tooltip.isConnected) document.body.append(tooltip);
  tooltip.textContent = label;
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  const left = Math.max(4, Math.min(x + 14, document.documentElement.clientWidth - box.width - 4));
  const top = y + 18 + box.height > window.innerHeight ? y - 12 - box.height : y + 18;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${Math.max(4, top)}px`;
}
