// Lists beside the board: the worst and the hardest moves, and the details of the run.

import type { Run } from "../../api/types";
import { ARROWS } from "../../board";
import { append, el } from "../../dom";
import { count, formatNumber, formatSeconds, formatTime } from "../../format";
import type { Game } from "./game";

const SHOWN = 50;

/** A list of positions in ascending `order`. Positions whose `order` is NaN are left out. */
export function rankedList(
  title: string,
  empty: string,
  game: Game,
  order: (at: number) => number,
  text: (at: number) => string,
  go: (at: number) => void,
): HTMLElement {
  const places = Array.from({ length: game.length }, (_, at) => at).filter((at) => !Number.isNaN(order(at)));
  const item = (at: number): HTMLElement => {
    const played = game.played(at);
    const button = el(
      "button",
      { type: "button" },
      el("span", { class: "rank-step" }, `step ${formatNumber(game.stepIndex(at))}`),
      el("span", { "aria-hidden": "true" }, played === null ? "" : (ARROWS[played] ?? "")),
      el("span", { class: "number" }, text(at)),
    );
    button.addEventListener("click", () => go(at));
    return el("li", {}, button);
  };
  const details = el("details", { class: "ranked" }, el("summary", {}, `${title} (${formatNumber(places.length)})`));
  // Sorting waits until the reader opens the list.
  const fill = (): void => {
    places.sort((a, b) => order(a) - order(b));
    const shown = places.slice(0, SHOWN).map(item);
    append(
      details,
      shown.length === 0 ? el("p", { class: "hint" }, empty) : el("ol", {}, ...shown),
      places.length > SHOWN && el("p", { class: "hint" }, `The first ${SHOWN} of ${formatNumber(places.length)}`),
    );
  };
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

export function runDetails(run: Run): HTMLElement {
  const entries = Object.entries(run.info ?? {}).filter(([, value]) => value !== null && value !== "");
  const facts: [string, string][] = [
    ["Values", run.raw_evs ? "in the engine's own unit" : "0 to 1"],
    ...run.models.map(({ name, at }): [string, string] => [`Model ${name}`, count(at.length, "annotated step")]),
    ...entries.map(([name, value]): [string, string] => [label(name), infoText(name, value)]),
  ];
  return el(
    "details",
    { class: "run-details" },
    el("summary", {}, "Details of the run"),
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
  );
}

function label(name: string): string {
  const text = name === "elapsed_s" ? "time" : name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function infoText(name: string, value: unknown): string {
  if (name === "elapsed_s" && typeof value === "number") return formatSeconds(value);
  if (/(_time|_at)$/.test(name) && typeof value === "string") return formatTime(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
