// The places of a position: steps of runs.

import type { Place, Position } from "../../api/types";
import { el } from "../../dom";
import { count, formatNumber } from "../../format";
import { runRoute } from "../../router";
import { SYMMETRIES } from "../../symmetry";
import { moveName, rounded, unknown } from "./moves";

const FIRST = 50;

/** The table of places, with links to the replay. */
export function placesTable({ places, num_found }: Position): HTMLElement {
  const body = el("tbody", {}, ...places.slice(0, FIRST).map(placeRow));
  const header = (title: string, isNumber: boolean): HTMLElement =>
    el("th", { scope: "col", class: isNumber ? "number" : null }, title);
  const table = el(
    "table",
    {},
    el("caption", { class: "offscreen" }, "Places"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        header("Run and step", false),
        header("Engine", false),
        header("Score", true),
        header("Steps", true),
        header("Move", false),
        header("Value", true),
        header("Symmetry", false),
      ),
    ),
    body,
  );
  const section = el(
    "section",
    {},
    el("h2", {}, "Places"),
    el("div", { class: "scroll", role: "region", "aria-label": "Places", tabindex: 0 }, table),
  );
  if (places.length > FIRST) {
    const more = el("button", { type: "button" }, `Show ${formatNumber(places.length)}`);
    more.addEventListener("click", () => {
      body.append(...places.slice(FIRST).map(placeRow));
      more.remove();
    });
    section.append(more);
  }
  if (num_found > places.length) {
    section.append(
      el("p", { class: "hint" }, `The list has ${formatNumber(places.length)} of ${count(num_found, "place")}.`),
    );
  }
  return section;
}

function placeRow(place: Place): HTMLElement {
  const symmetry = typeof place.symmetry === "number" ? SYMMETRIES[place.symmetry]?.name : place.symmetry;
  return el(
    "tr",
    {},
    el(
      "td",
      {},
      el("a", { href: runRoute(place.run_id, place.step_index) }, `Run ${place.run_id}, step ${place.step_index}`),
    ),
    el("td", {}, place.engine ?? unknown()),
    el("td", { class: "number" }, formatNumber(place.max_score)),
    el("td", { class: "number" }, formatNumber(place.num_steps)),
    el("td", {}, place.move === null ? unknown() : moveName(place.move)),
    el("td", { class: "number" }, place.value === null ? unknown() : formatNumber(rounded(place.value))),
    el("td", {}, place.symmetry === 0 ? "same board" : (symmetry ?? "")),
  );
}
