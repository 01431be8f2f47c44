// Links into the explorer, which shows the runs that a mark stands for.

import type { Report } from "./data";

/** Builds links; every method returns null if the report has no explorer. */
export class Links {
  readonly #base: string | null;
  readonly #where: string | null;

  constructor(report: Report) {
    const base = report.explorer;
    this.#base = base !== null && /^(https?:\/\/|\/$)/.test(base) ? base : null;
    this.#where = report.where;
  }

  get exist(): boolean {
    return this.#base !== null;
  }

  /** One step of a run. */
  step(run: number, step: number): string | null {
    return this.#base === null ? null : `${this.#base}#/run/${run}/step/${step}`;
  }

  /** The runs that fulfil all conditions, each an SQL condition over `runs`. */
  runs(...conditions: (string | null)[]): string | null {
    if (this.#base === null) return null;
    const parts = [this.#where, ...conditions].filter((part) => part !== null);
    const condition = parts.length > 1 ? parts.map((part) => `(${part})`).join(" AND ") : (parts[0] ?? "true");
    return `${this.#base}#/runs?where=${encodeURIComponent(condition)}`;
  }
}
