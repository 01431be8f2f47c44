// The table of tiles that engines reach, as READMEs of this field show it.

import { formatNumber, formatShare } from "./format";

export interface ReachLine {
  engine: string;
  runs: number;
  /** The share of runs that reach each tile; an absent tile is not known. */
  shares: ReadonlyMap<number, number>;
}

/** Text for a cell of a Markdown table. */
function escape(value: string): string {
  return value.replace(/[\r\n]+/g, " ").replace(/[\\`*_{}[\]<>|~]/g, "\\$&");
}

/** `| engine | games | 65536 | … |` with one line per engine and the tiles in the given order. */
export function reachTable(lines: readonly ReachLine[], tiles: readonly number[]): string {
  const rows = [
    ["engine", "games", ...tiles.map(String)],
    ["---", "---:", ...tiles.map(() => "---:")],
    ...lines.map((line) => [
      escape(line.engine),
      formatNumber(line.runs),
      ...tiles.map((tile) => {
        const share = line.shares.get(tile);
        return share === undefined ? "–" : formatShare(share);
      }),
    ]),
  ];
  return rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n") + "\n";
}
