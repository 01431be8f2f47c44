// The rows of the list, loaded in pages as they come into view.

import { isAbort } from "../../api/client";
import type { RunRow, Runs } from "../../api/types";

const SIZE = 200;
const KEPT = 60;

export class RowPages {
  readonly #load: (offset: number, limit: number, signal: AbortSignal) => Promise<Runs>;
  readonly #onAnswer: (runs: Runs) => void;
  readonly #onError: (error: unknown) => void;
  readonly #pages = new Map<number, RunRow[]>();
  readonly #running = new Map<number, AbortController>();
  #version: number | null = null;

  constructor(
    load: (offset: number, limit: number, signal: AbortSignal) => Promise<Runs>,
    onAnswer: (runs: Runs) => void,
    onError: (error: unknown) => void,
  ) {
    this.#load = load;
    this.#onAnswer = onAnswer;
    this.#onError = onError;
  }

  row(index: number): RunRow | undefined {
    return this.#pages.get(Math.floor(index / SIZE))?.[index % SIZE];
  }

  /** Loads the rows from `first` to `last`, and cancels requests for distant rows. */
  want(first: number, last: number): void {
    const [from, to] = [Math.floor(first / SIZE), Math.floor(last / SIZE)];
    for (const [page, controller] of this.#running) {
      if (page >= from - 1 && page <= to + 1) continue;
      controller.abort();
      this.#running.delete(page);
    }
    for (let page = from; page <= to; page += 1) void this.#fetch(page);
  }

  clear(): void {
    this.stop();
    this.#pages.clear();
  }

  stop(): void {
    for (const controller of this.#running.values()) controller.abort();
    this.#running.clear();
  }

  async #fetch(page: number): Promise<void> {
    if (this.#pages.has(page) || this.#running.has(page)) return;
    const controller = new AbortController();
    this.#running.set(page, controller);
    try {
      const runs = await this.#load(page * SIZE, SIZE, controller.signal);
      if (this.#running.get(page) !== controller) return;
      // After a commit, the rows of older pages may be at other places.
      if (runs.version !== this.#version) this.#pages.clear();
      this.#version = runs.version;
      this.#pages.set(page, runs.rows);
      this.#forget(page);
      this.#running.delete(page);
      this.#onAnswer(runs);
    } catch (error) {
      if (this.#running.get(page) === controller) this.#running.delete(page);
      if (!isAbort(error)) this.#onError(error);
    }
  }

  /** Drops the pages that are farthest from the current one. */
  #forget(current: number): void {
    if (this.#pages.size <= KEPT) return;
    const distance = (page: number): number => Math.abs(page - current);
    const farthest = [...this.#pages.keys()].sort((a, b) => distance(b) - distance(a))[0];
    if (farthest !== undefined) this.#pages.delete(farthest);
  }
}
