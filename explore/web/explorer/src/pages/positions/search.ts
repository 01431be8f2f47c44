// The search for a position in the archive: one request at a time, with its progress and its result.

import { errorText, isAbort } from "../../api/client";
import type { Board, Position } from "../../api/types";
import type { Context } from "../../context";
import { announce, el } from "../../dom";
import { count, formatSeconds } from "../../format";
import { movesTable } from "./moves";
import type { Policy } from "./moves";
import { nextPositions } from "./next";
import { openings } from "./openings";
import { placesTable } from "./places";

const MAX_PLACES = 500;
/** A search that ends sooner shows no progress. */
const QUIET_MS = 200;

export class Search {
  readonly element = el("div", { class: "position-result" });
  readonly #context: Context;
  readonly #go: (board: Board) => void;
  readonly #progress = el("p", { class: "searching", hidden: true });
  readonly #content = el("div", { class: "position-content" });
  #request: AbortController | null = null;
  #timer: ReturnType<typeof setInterval> | undefined;
  readonly #found: (position: Position) => void;

  /** Calls `go` with a next position that the reader chooses, and `found` with each result. */
  constructor(context: Context, go: (board: Board) => void, found: (position: Position) => void) {
    this.#context = context;
    this.#go = go;
    this.#found = found;
    this.element.append(this.#progress, this.#content);
  }

  /** Cancels the running search and shows nothing until the next one. */
  cancel(): void {
    this.#request?.abort();
    this.#request = null;
    this.#stopProgress();
  }

  async start(board: Board): Promise<void> {
    this.cancel();
    const request = new AbortController();
    this.#request = request;
    this.#startProgress();
    try {
      if (/^0*$/.test(board.board) && board.mask === 0) {
        this.#content.replaceChildren(await openings(this.#context, request.signal));
      } else {
        const [position, policy] = await Promise.all([
          this.#context.api.position(board, MAX_PLACES, request.signal),
          this.#policy(board, request.signal),
        ]);
        this.#found(position);
        this.#show(position, policy);
      }
    } catch (error) {
      if (isAbort(error)) return;
      const again = el("button", { type: "button" }, "Search again");
      again.addEventListener("click", () => void this.start(board));
      this.#content.replaceChildren(el("p", { class: "error", role: "alert" }, errorText(error)), again);
    } finally {
      if (this.#request === request) this.cancel();
    }
  }

  /** The live policy's values. The search shows its result without them if they fail. */
  async #policy(board: Board, signal: AbortSignal): Promise<Policy | null> {
    if (this.#context.archive.policy === null) return null;
    try {
      const { name, values } = await this.#context.api.policy([board], signal);
      return { name, values: values[0] ?? [] };
    } catch (error) {
      if (isAbort(error)) throw error;
      return null;
    }
  }

  #show(position: Position, policy: Policy | null): void {
    const { num_found, seconds } = position;
    // A run visits a position at most once, because the sum of the tiles grows with each move.
    const text = num_found === 0 ? "Not in the archive" : `${count(num_found, "place")} in ${count(num_found, "run")}`;
    const hint = num_found === 0 ? " under any of the eight symmetries," : " up to the eight symmetries,";
    this.#content.replaceChildren(
      el(
        "p",
        { class: "found" },
        el("strong", {}, text),
        el("span", { class: "hint" }, `${hint} in ${formatSeconds(seconds)}`),
      ),
      el("section", {}, el("h2", {}, "Moves"), movesTable(position, policy)),
    );
    if (num_found > 0) this.#content.append(nextPositions(position, this.#go), placesTable(position));
    else this.#content.append(el("p", { class: "hint" }, "Change the board, or clear it to start from an opening."));
    announce(text);
  }

  #startProgress(): void {
    const started = performance.now();
    const steps = count(this.#context.archive.num_steps, "step");
    const text = el("span");
    const stop = el("button", { type: "button" }, "Cancel");
    stop.addEventListener("click", () => {
      this.cancel();
      this.#content.replaceChildren(el("p", { class: "hint" }, "The search was cancelled."));
    });
    this.#progress.replaceChildren(text, stop);
    this.element.setAttribute("aria-busy", "true");
    this.#timer = setInterval(() => {
      const elapsed = performance.now() - started;
      if (elapsed < QUIET_MS) return;
      text.textContent = `Searching ${steps} for ${(elapsed / 1000).toFixed(1)} s `;
      this.#progress.hidden = false;
    }, 100);
  }

  #stopProgress(): void {
    clearInterval(this.#timer);
    this.#progress.hidden = true;
    this.element.removeAttribute("aria-busy");
  }
}
