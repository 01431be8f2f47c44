// Plays a run by itself.

export const SPEEDS = [1, 2, 5, 10, 25, 60] as const;

export class Player {
  /** Positions per second. */
  speed = 5;
  readonly #step: (positions: number) => boolean;
  readonly #onChange: (isPlaying: boolean) => void;
  #frame: number | null = null;

  /** `step` moves forward by a number of positions, and returns false at the end. */
  constructor(step: (positions: number) => boolean, onChange: (isPlaying: boolean) => void) {
    this.#step = step;
    this.#onChange = onChange;
  }

  get isPlaying(): boolean {
    return this.#frame !== null;
  }

  toggle(): void {
    if (this.isPlaying) this.stop();
    else this.#start();
  }

  stop(): void {
    if (this.#frame === null) return;
    cancelAnimationFrame(this.#frame);
    this.#frame = null;
    this.#onChange(false);
  }

  #start(): void {
    let last = performance.now();
    let due = 1;
    const frame = (now: number): void => {
      // A page in the background gets no frames. Playing resumes where it stopped, without a jump.
      due += (Math.min(now - last, 500) / 1000) * this.speed;
      last = now;
      this.#frame = requestAnimationFrame(frame);
      if (due < 1) return;
      const positions = Math.floor(due);
      due -= positions;
      if (!this.#step(positions)) this.stop();
    };
    this.#frame = requestAnimationFrame(frame);
    this.#onChange(true);
  }
}
