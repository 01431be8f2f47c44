// The columns of the list of runs.

import type { RunRow } from "../../api/types";
import { tileChip } from "../../board";
import type { Child } from "../../dom";
import { el } from "../../dom";
import { formatNumber, formatSeconds, formatTime, NO_ENGINE } from "../../format";
import { runRoute } from "../../router";

export interface RunColumn {
  /** The name of the column on the server, for sorting. */
  name: string;
  title: string;
  number: boolean;
  content(row: RunRow): Child;
}

/** The text for an archive without runs. */
export const NO_RUNS = "The archive has no runs. Add some with `a2store ingest`; this page then offers to show them.";

export const COLUMNS: RunColumn[] = [
  {
    name: "run_id",
    title: "Run",
    number: true,
    content: (row) => el("a", { href: runRoute(row.run_id), tabindex: -1 }, String(row.run_id)),
  },
  {
    name: "engine",
    title: "Engine",
    number: false,
    content: (row) =>
      row.engine === null ? el("span", { class: "null" }, NO_ENGINE) : el("span", { title: row.engine }, row.engine),
  },
  { name: "max_score", title: "Score", number: true, content: (row) => formatNumber(row.max_score) },
  { name: "highest_tile", title: "Tile", number: true, content: (row) => tileChip(row.highest_tile) },
  { name: "num_steps", title: "Steps", number: true, content: (row) => formatNumber(row.num_steps) },
  { name: "format", title: "Format", number: false, content: (row) => row.format },
  {
    name: "start_time",
    title: "Started",
    number: false,
    content: (row) => (row.start_time === null ? null : formatTime(row.start_time)),
  },
  {
    name: "elapsed_s",
    title: "Time",
    number: true,
    content: (row) => (row.elapsed_s === null ? null : formatSeconds(row.elapsed_s)),
  },
  {
    name: "session",
    title: "Session",
    number: false,
    content: (row) => (row.session === null ? null : el("span", { title: row.session }, row.session)),
  },
  { name: "raw_evs", title: "Values", number: false, content: (row) => (row.raw_evs ? "raw" : "0 to 1") },
];
