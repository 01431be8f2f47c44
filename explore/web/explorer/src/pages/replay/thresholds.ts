// The fields for the limits of marks, and for the edges of value bins.

import { el } from "../../dom";
import type { Settings } from "../../settings";
import { parseEdges } from "./bins";
import type { Thresholds } from "./marks";

export interface Limits extends Thresholds {
  edges: number[];
}

const EDGES_KEY = "bin-edges";

/** The limits that the reader set, kept while the page is open. */
let remembered: Thresholds | null = null;

export class LimitFields {
  readonly element: HTMLElement;
  limits: Limits;

  constructor(defaults: Thresholds, isRaw: boolean, hasBins: boolean, settings: Settings, change: () => void) {
    const edges = settings.get(EDGES_KEY) ?? "";
    this.limits = { ...(remembered ?? defaults), edges: parseEdges(edges) ?? [] };
    const number = (name: keyof Thresholds, label: string, doc: string): HTMLElement => {
      const field = el("input", { type: "number", min: 0, step: "any", value: this.limits[name] });
      field.addEventListener("input", () => {
        if (field.value === "" || !field.validity.valid) return;
        this.limits = { ...this.limits, [name]: Number(field.value) };
        remembered = { minLoss: this.limits.minLoss, maxGap: this.limits.maxGap };
        change();
      });
      return el("label", { title: doc }, label, field);
    };
    const edgeField = el("input", { type: "text", value: edges, placeholder: "0, 0.5, 0.9, 1" });
    edgeField.addEventListener("change", () => {
      const parsed = parseEdges(edgeField.value);
      const isValid = parsed !== null || edgeField.value.trim() === "";
      edgeField.setAttribute("aria-invalid", String(!isValid));
      if (!isValid) return;
      settings.set(EDGES_KEY, edgeField.value);
      this.limits = { ...this.limits, edges: parsed ?? [] };
      change();
    });
    this.element = el(
      "details",
      { class: "limits" },
      el("summary", {}, "Limits of marks"),
      el(
        "div",
        { class: "limit-fields" },
        number("minLoss", "A blunder loses at least", "The best value minus the value of the played move"),
        number(
          "maxGap",
          "A hard move has a gap of at most",
          "The best value minus the second best one, if they differ",
        ),
        hasBins ? el("label", {}, "Edges of value bins, from 0 to 1", edgeField) : null,
      ),
      isRaw
        ? el(
            "p",
            { class: "hint" },
            "The values are in the engine's own unit. For the marks, the least value of a step is 0 and the best is 1.",
          )
        : null,
    );
  }
}
