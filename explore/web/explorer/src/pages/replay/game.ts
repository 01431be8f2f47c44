// A run for the replay, with values computed from each position.

import type { FourValues, Model, Run } from "../../api/types";
import { exponents } from "../../board";

export interface GameModel {
  name: string;
  model: Model;
  /** For each position, the index into the model's arrays; -1 without an annotation. */
  rows: Int32Array;
}

export class Game {
  readonly run: Run;
  /** The id; -1 for a run of a file. */
  readonly id: number;
  readonly length: number;
  /** The best value; NaN if no value is known. */
  readonly best: Float64Array;
  /** The loss of the played move, from 0 to 1; NaN if unknown. */
  readonly loss: Float64Array;
  /** The gap between the best two values, from 0 to 1; NaN if unknown. */
  readonly gap: Float64Array;
  readonly score: Float64Array;
  readonly maxExp: Float64Array;
  readonly empty: Float64Array;
  readonly models: GameModel[];

  constructor(run: Run) {
    const { positions } = run;
    this.run = run;
    this.id = run.run_id ?? -1;
    this.length = positions.board.length;
    const numbers = (): Float64Array => new Float64Array(this.length).fill(Number.NaN);
    this.best = numbers();
    this.loss = known(positions.loss);
    this.gap = known(positions.gap);
    this.score = known(positions.score);
    this.maxExp = numbers();
    this.empty = numbers();
    for (let at = 0; at < this.length; at += 1) this.#look(at);
    this.models = run.models.map((model) => {
      const rows = new Int32Array(this.length).fill(-1);
      model.at.forEach((at, row) => {
        rows[at] = row;
      });
      return { name: model.name, model, rows };
    });
  }

  #look(at: number): void {
    const cells = this.cells(at);
    this.maxExp[at] = Math.max(...cells);
    this.empty[at] = cells.filter((exp) => exp === 0).length;
    const values = this.values(at).filter((value) => value !== null);
    if (values.length > 0) this.best[at] = Math.max(...values);
  }

  /** How far a value is behind the best one, from 0 to 1: raw values are divided by the range of the position's values. */
  behind(at: number, value: number): number {
    const best = this.best[at] ?? Number.NaN;
    if (value === best) return 0;
    const least = Math.min(...this.values(at).filter((other) => other !== null));
    return (best - value) / (this.run.raw_evs ? best - least : 1);
  }

  cells(at: number): number[] {
    const { board, mask } = this.run.positions;
    return exponents(board[at] ?? "0000000000000000", mask[at]);
  }

  values(at: number): FourValues {
    return this.run.positions.values[at] ?? [null, null, null, null];
  }

  played(at: number): number | null {
    return this.run.positions.played[at] ?? null;
  }

  isLegal(at: number, move: number): boolean {
    return (((this.run.positions.legal[at] ?? 0) >> move) & 1) === 1;
  }

  /** The index of the step; null for the final board. */
  step(at: number): number | null {
    return this.run.positions.step[at] ?? null;
  }

  /** The step index of a position in addresses. The final board has the index after the last step. */
  stepIndex(at: number): number {
    return this.step(at) ?? (at === 0 ? 0 : (this.step(at - 1) ?? 0) + 1);
  }

  /** The position of a step, or the next one if that step is missing. */
  find(stepIndex: number): number {
    let [low, high] = [0, Math.max(this.length - 1, 0)];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stepIndex(middle) < stepIndex) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The text of a value: values from 0 to 1 have five decimals, others are in the engine's own unit. */
  valueText(value: number): string {
    if (this.run.raw_evs || Math.abs(value) >= 10) {
      return value.toLocaleString("en-US", { maximumSignificantDigits: 7 });
    }
    return shareText(value);
  }
}

/** The text of a number from 0 to 1, such as a loss. */
export function shareText(value: number): string {
  return value !== 0 && Math.abs(value) < 0.00001 ? value.toExponential(1) : value.toFixed(5);
}

function known(values: (number | null)[]): Float64Array {
  return Float64Array.from(values, (value) => value ?? Number.NaN);
}
