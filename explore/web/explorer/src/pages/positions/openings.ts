// Openings: the most frequent first positions of the archive.

import type { Context } from "../../context";
import { boardView } from "../../board";
import { el } from "../../dom";
import { count } from "../../format";
import { positionRoute } from "../../router";

/** The most frequent first positions, as links. */
export async function openings(context: Context, signal: AbortSignal): Promise<HTMLElement> {
  const result = await context.api.query("opening_book", { first_steps: 2, limit: 24 }, 24, signal);
  const at = (name: string): number => result.columns.findIndex((column) => column.name === name);
  const [board, steps] = [at("position"), at("num_steps")];
  const items = result.rows.map((row) => {
    const digits = String(row[board]);
    const times = el("span", { class: "hint" }, count(Number(row[steps]), "time"));
    return el("li", {}, el("a", { href: positionRoute(digits) }, boardView(digits), times));
  });
  return el(
    "section",
    {},
    el("p", {}, "The board is empty. Set its tiles, paste a board, or start from an opening."),
    el("h2", {}, "Frequent openings"),
    items.length === 0
      ? el("p", { class: "hint" }, "The archive has no steps. Add runs with `a2store ingest`.")
      : el("ol", { class: "next-boards" }, ...items),
  );
}
