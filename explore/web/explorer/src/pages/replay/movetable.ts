// The four moves of a position, with their values and the predictions of the models.

import type { Annotation, FourValues } from "../../api/types";
import { ARROWS, MOVES } from "../../board";
import { el, scrollFrame } from "../../dom";
import { formatShare } from "../../format";
import type { Symmetry } from "../../symmetry";
import { BinBars, binOf } from "./bins";
import type { Game, GameModel } from "./game";
import type { AnnotationLoader, PolicyLoader } from "./loader";
import type { Thresholds } from "./marks";
import { severity } from "./marks";

const ENGINE = "Engine";

/** The content of the table for a position. */
interface Shown {
  at: number;
  game: Game;
  thresholds: Thresholds;
  edges: number[];
}

/** A column: updates its cell of a move. `move` is the move of the board, before any symmetry. */
interface TableColumn {
  group: string;
  title: string;
  doc: string;
  number: boolean;
  cell(): { element: HTMLTableCellElement; show(shown: Shown, move: number): void };
}

export class MoveTable {
  readonly element: HTMLElement;
  readonly #game: Game;
  readonly #annotations: AnnotationLoader;
  readonly #policy: { name: string; loader: PolicyLoader } | null;
  readonly #table = el("table", { class: "move-table" });
  /** The meanings of the models' columns, for readers without a pointer. */
  readonly #meanings = el("p", { class: "hint legend meanings" });
  /** The kinds of predictions seen so far, with the model's name. */
  readonly #kinds = new Set<string>();
  #rows: { row: HTMLTableRowElement; name: HTMLElement; cells: ReturnType<TableColumn["cell"]>[] }[] = [];

  constructor(game: Game, annotations: AnnotationLoader, policy: { name: string; loader: PolicyLoader } | null) {
    this.#game = game;
    this.#annotations = annotations;
    this.#policy = policy;
    const scroll = el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Moves of the position" },
      this.#table,
    );
    this.element = el("div", {}, scrollFrame(scroll, this.#table), this.#meanings);
  }

  show(shown: Shown, symmetry: Symmetry): void {
    this.#build(shown.at);
    const played = this.#game.played(shown.at);
    this.#rows.forEach(({ row, name, cells }, turned) => {
      const move = symmetry.inverse[turned] ?? turned;
      const isPlayed = played === move;
      row.classList.toggle("played", isPlayed);
      row.classList.toggle("illegal", played !== null && !this.#game.isLegal(shown.at, move));
      row.classList.toggle("best", this.#game.values(shown.at)[move] === this.#game.best[shown.at]);
      const label = isPlayed ? "played" : "";
      if (name.textContent !== label) name.textContent = label;
      for (const cell of cells) cell.show(shown, move);
    });
  }

  /** Builds the table, and builds it again when a model's first prediction of another kind is loaded. */
  #build(at: number): void {
    const known = this.#kinds.size;
    for (const { name } of this.#game.models) {
      const annotation = this.#annotations.get(at, name);
      if (annotation?.logp) this.#kinds.add(`logp ${name}`);
      if (annotation?.bins) this.#kinds.add(`bins ${name}`);
    }
    if (this.#kinds.size === known && this.#rows.length > 0) return;
    const columns = [
      ...this.#valueColumns(),
      ...this.#policyColumns(),
      ...this.#game.models.flatMap((model) => this.#modelColumns(model)),
    ];
    this.#rows = MOVES.map((move, index) => {
      const name = el("span", { class: "played-label" });
      const cells = columns.map((column) => column.cell());
      const head = el(
        "th",
        { scope: "row" },
        el("span", { class: "move-arrow" }, ARROWS[index] ?? ""),
        ` ${move} `,
        name,
      );
      return { name, cells, row: el("tr", {}, head, ...cells.map(({ element }) => element)) };
    });
    const meanings = new Map(columns.filter(({ group }) => group !== ENGINE).map(({ title, doc }) => [title, doc]));
    this.#meanings.replaceChildren(...[...meanings].flatMap(([title, doc]) => [el("strong", {}, title), ` ${doc}. `]));
    this.#table.replaceChildren(heads(columns), el("tbody", {}, ...this.#rows.map(({ row }) => row)));
  }

  #valueColumns(): TableColumn[] {
    const unit = this.#game.run.raw_evs ? "the engine's own unit" : "0 to 1";
    return [
      textColumn(ENGINE, "Value", `The engine's value of the move, in ${unit}`, ({ at, game }, move) => {
        const value = game.values(at)[move] ?? null;
        return value === null ? "–" : game.valueText(value);
      }),
      behindColumn(),
    ];
  }

  #modelColumns({ name, model, rows }: GameModel): TableColumn[] {
    const at = (place: number): Annotation | null => this.#annotations.get(place, name);
    const columns = [
      textColumn(
        name,
        "Prefers",
        "★ = the move that the model prefers, with its probability; T = the move of the annotated game",
        (shown, move) => {
          const row = rows[shown.at] ?? -1;
          const teacher = at(shown.at)?.teacher === move ? " T" : "";
          if (model.preferred[row] !== move) return teacher;
          const probability = model.probability[row] ?? null;
          return `★${probability === null ? "" : ` ${formatShare(probability)}`}${teacher}`;
        },
      ),
    ];
    if (model.p1.some((p1) => p1?.some((p) => p !== null))) {
      columns.push(
        textColumn(name, "Top bin", "The probability that the value is in the highest value bin", (shown, move) =>
          share(model.p1[rows[shown.at] ?? -1]?.[move]),
        ),
      );
    }
    if (this.#kinds.has(`logp ${name}`)) {
      columns.push(
        textColumn(name, "Log p", "The logarithm of the move's probability", (shown, move) => {
          const logp = at(shown.at)?.logp?.[move] ?? null;
          return logp === null ? "–" : logp.toFixed(3);
        }),
        textColumn(name, "p", "The move's probability: e to the power of log p", (shown, move) => {
          const logp = at(shown.at)?.logp?.[move] ?? null;
          return share(logp === null ? null : Math.exp(logp));
        }),
      );
    }
    if (this.#kinds.has(`bins ${name}`)) columns.push(binColumn(name, at));
    return columns;
  }

  #policyColumns(): TableColumn[] {
    if (this.#policy === null) return [];
    const { name, loader } = this.#policy;
    return [
      textColumn(`Policy: ${name}`, "Value", "The policy's value; ★ = its best move", ({ at }, move) => {
        const values = loader.get(at);
        const value = values?.[move] ?? null;
        if (value === null) return "–";
        return `${isGreatest(values, value) ? "★ " : ""}${this.#game.valueText(value)}`;
      }),
    ];
  }
}

function isGreatest(values: FourValues | null, value: number): boolean {
  return (values ?? []).every((other) => other === null || other <= value);
}

function share(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : formatShare(value);
}

function heads(columns: TableColumn[]): HTMLElement {
  const groups: [string, number][] = [];
  for (const { group } of columns) {
    const last = groups.at(-1);
    if (last?.[0] === group) last[1] += 1;
    else groups.push([group, 1]);
  }
  return el(
    "thead",
    {},
    el(
      "tr",
      {},
      el("th", { rowspan: 2, scope: "col" }, "Move"),
      ...groups.map(([group, colspan]) => el("th", { colspan, scope: "colgroup", class: "group" }, group)),
    ),
    el(
      "tr",
      {},
      ...columns.map(({ title, doc, number }) =>
        el("th", { scope: "col", title: doc, class: number ? "number" : null }, title),
      ),
    ),
  );
}

function textColumn(
  group: string,
  title: string,
  doc: string,
  text: (shown: Shown, move: number) => string,
): TableColumn {
  const cell = (): ReturnType<TableColumn["cell"]> => {
    const element = el("td", { class: `number ${title.toLowerCase().replaceAll(" ", "-")}` });
    return {
      element,
      show(shown, move) {
        const content = text(shown, move);
        if (element.textContent !== content) element.textContent = content;
      },
    };
  };
  return { group, title, doc, number: true, cell };
}

/** A number with a bar. The full bar is a blunder's loss, or the largest loss of the four moves if that is greater. */
function behindColumn(): TableColumn {
  const cell = (): ReturnType<TableColumn["cell"]> => {
    const text = el("span", { class: "behind-text" });
    const sign = el("span", { class: "severity" });
    const bar = el("span", { class: "behind-bar", "aria-hidden": "true" });
    const box = el("span", { class: "bar-box" }, bar);
    const element = el("td", { class: "behind" }, box, text, sign);
    return {
      element,
      show({ at, game, thresholds }, move) {
        const value = game.values(at)[move] ?? null;
        const behind = value === null ? null : game.behind(at, value);
        const known = game.values(at).filter((other) => other !== null);
        const worst = Math.max(...known.map((other) => game.behind(at, other)), thresholds.minLoss);
        const mark = behind === null ? "" : severity(behind, thresholds);
        const difference = (game.best[at] ?? Number.NaN) - (value ?? Number.NaN);
        box.style.visibility = behind === null ? "hidden" : "visible";
        text.textContent = behind === null ? "–" : behind === 0 ? "best" : `−${game.valueText(difference)}`;
        sign.textContent = mark;
        element.classList.toggle("bad", mark === "!!");
        bar.style.width = behind === null || worst <= 0 ? "0" : `${(behind / worst) * 100}%`;
      },
    };
  };
  return { group: ENGINE, title: "Behind the best", doc: "The best value minus the value", number: true, cell };
}

function binColumn(model: string, annotation: (at: number) => Annotation | null): TableColumn {
  const cell = (): ReturnType<TableColumn["cell"]> => {
    const bars = new BinBars();
    return {
      element: el("td", {}, bars.element),
      show({ at, game, edges }, move) {
        const bins = annotation(at)?.bins?.[move] ?? null;
        const value = game.run.raw_evs ? null : (game.values(at)[move] ?? null);
        bars.show(bins, bins === null || value === null ? null : binOf(value, bins.length, edges));
      },
    };
  };
  const doc = "The probabilities of the value bins, from the lowest to the highest; ▲ = the bin of the engine's value";
  return { group: model, title: "Value bins", doc, number: false, cell };
}
