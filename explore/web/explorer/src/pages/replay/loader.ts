// Loads the annotations of models and the values of the live policy around the shown position.

import type { Api } from "../../api/client";
import { ApiError, errorText, isAbort } from "../../api/client";
import type { Annotation, FourValues } from "../../api/types";
import type { Game } from "./game";

const CHUNK = 512;
const KEPT_CHUNKS = 12;
/** The policy evaluates boards around the shown one, so that the next steps need no request. */
const AHEAD = 48;
const BEHIND = 16;
/** The pause after a failed request, in milliseconds. */
const PAUSE = 3000;

export class AnnotationLoader {
  readonly #api: Api;
  readonly #game: Game;
  readonly #onLoad: () => void;
  readonly #chunks = new Map<number, Map<string, Annotation> | null>();
  readonly #controller = new AbortController();
  #failed = Number.NEGATIVE_INFINITY;
  error: string | null = null;

  constructor(api: Api, game: Game, onLoad: () => void) {
    this.#api = api;
    this.#game = game;
    this.#onLoad = onLoad;
  }

  get(at: number, model: string): Annotation | null {
    const step = this.#game.step(at);
    if (step === null) return null;
    return this.#chunks.get(Math.floor(step / CHUNK))?.get(`${step} ${model}`) ?? null;
  }

  /** Loads the missing annotations around a position. */
  want(at: number): void {
    if (this.#game.models.length === 0) return;
    const step = this.#game.stepIndex(at);
    void this.#fetch(Math.floor(step / CHUNK));
    const last = this.#game.stepIndex(this.#game.length - 1);
    for (const near of [step + 64, step - 64]) {
      if (near >= 0 && near <= last) void this.#fetch(Math.floor(near / CHUNK));
    }
  }

  stop(): void {
    this.#controller.abort();
  }

  async #fetch(chunk: number): Promise<void> {
    if (this.#chunks.has(chunk) || performance.now() < this.#failed + PAUSE) return;
    this.#chunks.set(chunk, null);
    try {
      const from = chunk * CHUNK;
      const rows = await this.#api.annotations(this.#game.id, from, from + CHUNK, this.#controller.signal);
      this.#chunks.set(chunk, new Map(rows.map((row) => [`${row.step} ${row.model}`, row])));
      const oldest = this.#chunks.keys().next().value;
      if (this.#chunks.size > KEPT_CHUNKS && oldest !== undefined) this.#chunks.delete(oldest);
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.#chunks.delete(chunk);
      this.#failed = performance.now();
      this.error = errorText(error);
    }
    this.#onLoad();
  }
}

export class PolicyLoader {
  readonly #api: Api;
  readonly #game: Game;
  readonly #onLoad: () => void;
  readonly #values = new Map<number, FourValues | null>();
  #controller = new AbortController();
  #isLoading = false;
  #failed = Number.NEGATIVE_INFINITY;
  #wanted = 0;
  error: string | null = null;

  constructor(api: Api, game: Game, onLoad: () => void) {
    this.#api = api;
    this.#game = game;
    this.#onLoad = onLoad;
  }

  get(at: number): FourValues | null {
    return this.#values.get(at) ?? null;
  }

  want(at: number): void {
    this.#wanted = at;
    const isPaused = performance.now() < this.#failed + PAUSE;
    if (!this.#values.has(at) && !this.#isLoading && !isPaused) void this.#fetch();
  }

  stop(): void {
    this.#controller.abort();
  }

  async #fetch(): Promise<void> {
    const first = Math.max(this.#wanted - BEHIND, 0);
    const last = Math.min(this.#wanted + AHEAD, this.#game.length - 1);
    const places = Array.from({ length: last - first + 1 }, (_, index) => first + index).filter(
      (at) => !this.#values.has(at),
    );
    const { board, mask } = this.#game.run.positions;
    const boards = places.map((at) => ({ board: board[at] ?? "", mask: mask[at] ?? 0 }));
    this.#isLoading = true;
    try {
      const { values } = await this.#api.policy(boards, this.#controller.signal);
      places.forEach((at, index) => this.#values.set(at, values[index] ?? null));
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.error = error instanceof ApiError && error.status === 404 ? "There is no live policy." : errorText(error);
      this.#failed = performance.now();
    }
    this.#isLoading = false;
    this.#onLoad();
    this.want(this.#wanted);
  }
}
