// The choice of a click's effect on a cell: raise its tile, or paint a tile.

import { el } from "../../dom";

const TILES = Array.from({ length: 16 }, (_, index) => index + 1);

/** A group of radio buttons. Calls `choose` with the exponent to paint; null = raise the tile. */
export function palette(choose: (brush: number | null) => void): HTMLElement {
  const option = (brush: number | null, name: string, face: HTMLElement): HTMLElement => {
    const input = el("input", { type: "radio", name: "brush", "aria-label": name });
    input.checked = brush === null;
    input.addEventListener("change", () => choose(brush));
    return el("label", { class: "brush", title: name }, input, face);
  };
  return el(
    "fieldset",
    { class: "palette" },
    el("legend", {}, "A click on a cell"),
    option(null, "Doubles the tile", el("span", { class: "raise" }, "× 2")),
    option(0, "Empties the cell", el("span", { class: "tile t0" }, "\u00a0")),
    ...TILES.map((exp) => option(exp, `Paints ${2 ** exp}`, el("span", { class: `tile t${exp}` }, String(2 ** exp)))),
  );
}
