// The replay of a loaded run: connects the board, the table, the timeline and the controls.

import { MOVES } from "../../board";
import { boardText } from "../../board";
import type { Context } from "../../context";
import { announce, copyButton, debounce, el } from "../../dom";
import { count, formatNumber, NO_ENGINE } from "../../format";
import type { Route } from "../../router";
import { formatRoute, positionRoute, runRoute, sqlRoute } from "../../router";
import { SYMMETRIES, turnBoard } from "../../symmetry";
import { BoardPanel } from "./boardpanel";
import { Controls } from "./controls";
import type { Game } from "./game";
import { shareText } from "./game";
import { AnnotationLoader, PolicyLoader } from "./loader";
import type { Kind, Marks } from "./marks";
import { findMarks, KIND_NAMES, kindsAt, kindsOf, nextMark } from "./marks";
import { MoveTable } from "./movetable";
import { Player, SPEEDS } from "./player";
import { replayKeys } from "./keys";
import { rankedList, runDetails } from "./sidelists";
import { positionSql } from "./sql";
import { LimitFields } from "./thresholds";
import { Timeline } from "./timeline";

/** Browsers slow down pages that write addresses more often than about 100 times in 10 seconds. */
const ADDRESS_DELAY = 200;

export class ReplayView {
  readonly element: HTMLElement;
  readonly #game: Game;
  readonly #context: Context;
  readonly #board = new BoardPanel();
  readonly #table: MoveTable;
  readonly #timeline: Timeline;
  readonly #controls: Controls;
  readonly #player: Player;
  readonly #annotations: AnnotationLoader;
  readonly #policy: PolicyLoader | null;
  readonly #limits: LimitFields;
  readonly #heading: HTMLElement;
  readonly #where = el("p", { class: "position-text" });
  readonly #problem = el("p", { class: "error", hidden: true });
  readonly #legend = el("p", { class: "hint legend" });
  readonly #query = el("a", {}, "Query in SQL");
  readonly #find = el("a", {}, "Find this position");
  #marks: Marks;
  #at = 0;
  #symmetry = 0;

  /** Loads data once the reader stays on a position. */
  readonly #load = debounce(40, () => {
    this.#annotations.want(this.#at);
    this.#policy?.want(this.#at);
  });
  readonly #writeAddress = debounce(ADDRESS_DELAY, () => this.#context.navigate(this.#address, { replace: true }));
  readonly #announce = debounce(600, () => announce(this.#description));
  readonly #limitsChanged = debounce(150, () => {
    this.#findMarks();
    this.#show();
  });

  constructor(game: Game, context: Context) {
    const { run } = game;
    const { api, archive } = context;
    this.#game = game;
    this.#context = context;
    this.#annotations = new AnnotationLoader(api, game, () => this.#show());
    this.#policy = archive.policy === null ? null : new PolicyLoader(api, game, () => this.#show());
    const policy = this.#policy === null ? null : { name: archive.policy ?? "", loader: this.#policy };
    this.#table = new MoveTable(game, this.#annotations, policy);
    const kinds = kindsOf(game);
    this.#timeline = new Timeline(
      game,
      kinds,
      (at) => this.#goByHand(at),
      (kind) => this.#controls.chooseKind(kind),
    );
    this.#player = new Player(
      (positions) => this.go(this.#at + positions),
      (isPlaying) => this.#controls.setPlaying(isPlaying),
    );
    const thresholds = { minLoss: archive.min_loss, maxGap: archive.max_gap };
    this.#limits = new LimitFields(thresholds, run.raw_evs, run.models.length > 0, context.settings, () =>
      this.#limitsChanged(),
    );
    this.#marks = findMarks(game, this.#limits.limits);
    this.#controls = new Controls(game, kinds, this.#player.speed, {
      play: () => this.#play(),
      speed: (positions) => {
        this.#player.speed = positions;
      },
      go: (at) => this.#goByHand(at),
      by: (positions) => this.#goByHand(this.#at + positions),
      mark: (direction) => this.#goToMark(direction),
      symmetry: (index) => this.#turn(index),
    });
    this.#heading = el("h1", { tabindex: -1 }, run.run_id === null ? "Replay" : `Run ${run.run_id}`);
    this.element = this.#layout();
    this.#findMarks();
    this.#listen();
  }

  /** Shows the position of an address. */
  follow(route: Route): void {
    const symmetry = Number(route.params.get("symmetry") ?? 0);
    if (symmetry in SYMMETRIES) this.#symmetry = symmetry;
    this.#controls.setSymmetry(this.#symmetry);
    const step = Number(route.path[2] === "step" ? route.path[3] : 0);
    this.go(Number.isSafeInteger(step) && step >= 0 ? this.#game.find(step) : 0);
  }

  focusHeading(): void {
    this.#heading.focus({ preventScroll: true });
  }

  leave(): void {
    this.#player.stop();
    this.#load.cancel();
    this.#writeAddress.cancel();
    this.#announce.cancel();
    this.#limitsChanged.cancel();
    this.#annotations.stop();
    this.#policy?.stop();
    this.#timeline.leave();
  }

  /** Shows a position, or the last one. Returns false at the end of the run. */
  go(at: number): boolean {
    const last = this.#game.length - 1;
    this.#at = Math.max(Math.min(at, last), 0);
    this.#show();
    this.#writeAddress();
    this.#announce();
    return this.#at < last;
  }

  #goByHand(at: number): void {
    this.#player.stop();
    this.go(at);
  }

  /** Starts or pauses the player. It starts from the first position if the last one is shown. */
  #play(): void {
    if (!this.#player.isPlaying && this.#at === this.#game.length - 1) this.go(0);
    this.#player.toggle();
  }

  /** Takes the next or the previous speed. */
  #setSpeed(by: 1 | -1): void {
    const next = SPEEDS[SPEEDS.findIndex((speed) => speed === this.#player.speed) + by];
    if (next === undefined) return;
    this.#player.speed = next;
    this.#controls.setSpeed(next);
  }

  #goToMark(direction: 1 | -1): void {
    const { kind } = this.#controls;
    const at = nextMark(this.#marks[kind], this.#at, direction);
    if (at !== null) this.#goByHand(at);
    else announce(`No ${direction === 1 ? "later" : "earlier"} ${KIND_NAMES[kind].one}`);
  }

  #turn(index: number): void {
    this.#symmetry = index;
    this.#controls.setSymmetry(index);
    this.#show();
    this.#writeAddress();
  }

  #findMarks(): void {
    this.#marks = findMarks(this.#game, this.#limits.limits);
    this.#timeline.setMarks(this.#marks);
    this.#controls.setMarks(this.#marks);
    const { minLoss, maxGap } = this.#limits.limits;
    this.#legend.textContent =
      `≈ at most ${formatNumber(maxGap)} behind the best move, ` +
      `! at least ${formatNumber(minLoss / 4)} behind, !! at least ${formatNumber(minLoss)} behind.`;
  }

  #show(): void {
    const [game, at] = [this.#game, this.#at];
    const symmetry = this.#shownSymmetry;
    const { limits } = this.#limits;
    this.#board.show(game, at, symmetry);
    this.#table.show({ at, game, thresholds: limits, edges: limits.edges }, symmetry);
    this.#timeline.show(at);
    this.#controls.show(at);
    this.#showText();
    const problem = this.#annotations.error ?? this.#policy?.error ?? null;
    this.#problem.hidden = problem === null;
    this.#problem.textContent = problem ?? "";
    this.#load();
  }

  #showText(): void {
    const { board, mask } = this.#game.run.positions;
    this.#find.href = positionRoute(board[this.#at] ?? "", mask[this.#at]);
    this.#query.href = sqlRoute(positionSql(this.#game, this.#at));
    const kinds = kindsAt(this.#marks, this.#at).map((kind) =>
      el("span", { class: `mark-chip kind-${kind}` }, KIND_NAMES[kind].one),
    );
    this.#where.replaceChildren(
      el("strong", {}, this.#place),
      ...this.#facts.map((fact) => ` · ${fact}`),
      " ",
      ...kinds,
    );
  }

  get #place(): string {
    const step = this.#game.step(this.#at);
    return step === null ? "Final board" : `Step ${formatNumber(step)}`;
  }

  get #facts(): string[] {
    const [game, at] = [this.#game, this.#at];
    const score = game.score[at] ?? Number.NaN;
    const loss = game.loss[at] ?? Number.NaN;
    const played = game.played(at);
    return [
      Number.isNaN(score) ? "score unknown" : `score ${formatNumber(score)}`,
      count(game.empty[at] ?? 0, "empty cell"),
      ...(played === null ? [] : [`played ${MOVES[this.#shownSymmetry.moves[played] ?? played]}`]),
      ...(loss > 0 ? [`lost ${shareText(loss)}`] : []),
    ];
  }

  get #description(): string {
    const kinds = kindsAt(this.#marks, this.#at).map((kind) => KIND_NAMES[kind].one);
    return [this.#place, ...this.#facts, ...kinds].join(", ");
  }

  get #shownSymmetry(): (typeof SYMMETRIES)[number] {
    return SYMMETRIES[this.#symmetry] ?? (SYMMETRIES[0] as (typeof SYMMETRIES)[number]);
  }

  get #address(): string {
    const path = ["run", this.#game.id, "step", this.#game.stepIndex(this.#at)];
    return formatRoute(path, { symmetry: this.#symmetry === 0 ? null : this.#symmetry });
  }

  #listen(): void {
    const actions = {
      go: (at: number) => this.#goByHand(at),
      at: () => this.#at,
      mark: (direction: 1 | -1) => this.#goToMark(direction),
      kind: (kind: Kind) => this.#controls.chooseKind(kind),
      play: () => this.#play(),
      faster: (by: 1 | -1) => this.#setSpeed(by),
      colours: () => {
        const { settings } = this.#context;
        settings.palette = settings.palette === "classic" ? "safe" : "classic";
      },
      turn: () => this.#turn((this.#symmetry + 1) % SYMMETRIES.length),
      run: (by: number) => this.#goToRun(by),
    };
    this.#context.setShortcuts(replayKeys(this.#game, this.#context.hasPages, actions));
    this.#context.onAppearance(() => this.#timeline.draw());
  }

  #goToRun(by: number): void {
    const next = this.#game.id + by;
    if (next >= 0 && next < this.#context.archive.num_runs) this.#context.navigate(runRoute(next));
  }

  #layout(): HTMLElement {
    const game = this.#game;
    const copies = el(
      "div",
      { class: "copies", role: "group", "aria-label": "Copy" },
      el("span", { class: "hint" }, "Copy:"),
      copyButton("Hex", "the board as hex", () => this.#turned.board),
      copyButton("Text", "the board as text", () => {
        const cells = game.cells(this.#at);
        return boardText(this.#shownSymmetry.cells.map((cell) => cells[cell] ?? 0));
      }),
      copyButton("SQL", "a query for this board", () => positionSql(game, this.#at)),
      location.protocol !== "about:" &&
        copyButton("Link", "the link to this position", () => new URL(this.#address, location.href).href),
      this.#context.hasPages && el("span", { class: "links" }, this.#find, this.#query),
    );
    return el(
      "div",
      { class: "replay" },
      this.#header(),
      el("div", { class: "replay-board" }, this.#board.element, this.#controls.element, copies),
      el("div", { class: "replay-moves" }, this.#where, this.#table.element, this.#legend, this.#problem),
      this.#timeline.element,
      el("div", { class: "replay-side" }, ...this.#lists()),
    );
  }

  #header(): HTMLElement {
    const { run, id } = this.#game;
    const { archive, hasPages } = this.#context;
    const link = (to: number, text: string, label: string): HTMLElement | null =>
      to < 0 || to >= archive.num_runs ? null : el("a", { href: runRoute(to), title: label }, text);
    const engine = run.engine ?? NO_ENGINE;
    const query = run.engine === null ? "#/runs?unknown_engine=1" : formatRoute(["runs"], { engine: run.engine });
    const facts = [
      `score ${formatNumber(run.max_score)}`,
      count(run.num_steps, "step"),
      `largest tile ${formatNumber(run.highest_tile)}`,
    ];
    return el(
      "div",
      { class: "replay-header" },
      this.#heading,
      el(
        "p",
        { class: "run-facts" },
        hasPages ? el("a", { href: query, title: "All runs of this engine" }, engine) : el("span", {}, engine),
        ...facts.map((fact) => ` · ${fact}`),
      ),
      el(
        "p",
        { class: "run-links" },
        link(id - 1, `← Run ${id - 1}`, "Previous run (K)"),
        link(id + 1, `Run ${id + 1} →`, "Next run (J)"),
      ),
    );
  }

  #lists(): HTMLElement[] {
    const game = this.#game;
    const go = (at: number): void => this.#goByHand(at);
    const loss = (at: number): number => ((game.loss[at] ?? NaN) > 0 ? -(game.loss[at] ?? NaN) : NaN);
    const gap = (at: number): number => ((game.gap[at] ?? NaN) > 0 ? (game.gap[at] ?? NaN) : NaN);
    const hasValues = game.loss.some((loss) => !Number.isNaN(loss ?? NaN));
    const without = "The engine stored no values for this run, so no move has a loss.";
    return [
      rankedList(
        "Worst moves",
        hasValues ? "No move of this run loses value." : without,
        game,
        loss,
        (at) => `−${shareText(-loss(at))}`,
        go,
      ),
      rankedList(
        "Hardest moves",
        hasValues ? "No step has two best values that differ." : without,
        game,
        gap,
        (at) => `gap ${shareText(gap(at))}`,
        go,
      ),
      this.#limits.element,
      runDetails(game.run),
    ];
  }

  get #turned(): { board: string; mask: number } {
    const { board, mask } = this.#game.run.positions;
    return turnBoard(board[this.#at] ?? "", mask[this.#at] ?? 0, this.#shownSymmetry);
  }
}
