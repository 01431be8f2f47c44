// The keys of the replay. The key `?` lists them.

import type { Shortcut } from "../../context";
import type { Game } from "./game";
import type { Kind } from "./marks";
import { KIND_NAMES, KINDS } from "./marks";

interface KeyActions {
  at(): number;
  go(at: number): void;
  mark(direction: 1 | -1): void;
  kind(kind: Kind): void;
  faster(by: 1 | -1): void;
  colours(): void;
  play(): void;
  turn(): void;
  run(by: number): void;
}

/** The keys. `hasPages` = whether the keys of other runs have a meaning. */
export function replayKeys(game: Game, hasPages: boolean, actions: KeyActions): Shortcut[] {
  const last = game.length - 1;
  const by = (positions: number) => (): void => actions.go(actions.at() + positions);
  return [
    { keys: ["l", "ArrowRight"], doc: "One position forward", run: by(1) },
    { keys: ["h", "ArrowLeft"], doc: "One position back", run: by(-1) },
    { keys: ["]"], doc: "10 positions forward", run: by(10) },
    { keys: ["["], doc: "10 positions back", run: by(-10) },
    { keys: ["g", "Home"], doc: "First position", run: () => actions.go(0) },
    { keys: ["G", "End"], doc: "Last position", run: () => actions.go(last) },
    { keys: ["n"], doc: "Next mark of the chosen kind", run: () => actions.mark(1) },
    { keys: ["p"], doc: "Previous mark of the chosen kind", run: () => actions.mark(-1) },
    ...KINDS.map((kind, index) => ({
      keys: [String(index + 1)],
      doc: `Choose ${KIND_NAMES[kind].many.toLowerCase()}`,
      run: () => actions.kind(kind),
    })),
    { keys: [" "], doc: "Play or pause", run: () => actions.play() },
    { keys: ["+", "="], label: "+", doc: "Play faster", run: () => actions.faster(1) },
    { keys: ["-"], doc: "Play slower", run: () => actions.faster(-1) },
    { keys: ["r"], doc: "A random position", run: () => actions.go(Math.floor(Math.random() * (last + 1))) },
    { keys: ["s"], doc: "Turn or mirror the board", run: () => actions.turn() },
    { keys: ["c"], doc: "Switch the colours of the tiles", run: () => actions.colours() },
    ...(hasPages
      ? [
          { keys: ["J"], doc: "Next run", run: () => actions.run(1) },
          { keys: ["K"], doc: "Previous run", run: () => actions.run(-1) },
        ]
      : []),
  ];
}
