// The bodies of requests to the server and of its responses.

/** A board as 16 hex digits, and the mask of the cells that hold 65,536. */
export interface Board {
  board: string;
  mask: number;
}

/** The colour of each tile by exponent, 0 to 16: background and text. */
export type Palette = [string, string][];

export interface Archive {
  name: string;
  path: string;
  version: number;
  num_runs: number;
  num_steps: number;
  phases: Record<string, number>;
  engines: (string | null)[];
  models: string[];
  policy: string | null;
  program: string;
  max_rows: number;
  min_loss: number;
  max_gap: number;
  palettes: Record<PaletteName, Palette>;
}

export type PaletteName = "classic" | "safe";

/** The data of an `archive` event. */
export type ArchiveChange = Pick<Archive, "version" | "num_runs" | "num_steps">;

export interface RunFilter {
  engines?: (string | null)[];
  min_score?: number;
  max_score?: number;
  min_steps?: number;
  max_steps?: number;
  min_tile?: number;
  max_tile?: number;
  run_id?: number;
}

export interface RunsRequest {
  filter: RunFilter;
  where: string;
  sort: string;
  descending: boolean;
  offset: number;
  limit: number;
}

export interface RunRow {
  run_id: number;
  engine: string | null;
  max_score: number;
  highest_tile: number;
  num_steps: number;
  format: string;
  start_time: string | null;
  elapsed_s: number | null;
  session: string | null;
  raw_evs: boolean;
}

export interface Runs {
  version: number;
  total: number;
  seconds: number;
  rows: RunRow[];
}

/** Values of up, down, left and right; null for an illegal move and an unknown value. */
export type FourValues = (number | null)[];

export interface Positions {
  board: string[];
  mask: number[];
  /** The index of the step; null for the final board. */
  step: (number | null)[];
  score: (number | null)[];
  played: (number | null)[];
  legal: number[];
  values: FourValues[];
  /** The best value minus the value of the played move. `gap`: minus the second best one. Both are normalized to 0 to 1. */
  loss: (number | null)[];
  gap: (number | null)[];
}

export interface Model {
  name: string;
  /** The indices of the positions that the model annotated. */
  at: number[];
  preferred: (number | null)[];
  probability: (number | null)[];
  p1: (FourValues | null)[];
}

export interface Run {
  /** Null for a run of a file, which has no id. */
  run_id: number | null;
  engine: string | null;
  max_score: number;
  highest_tile: number;
  num_steps: number;
  raw_evs: boolean;
  /** A page in a file lacks it. */
  info?: Record<string, unknown>;
  positions: Positions;
  models: Model[];
}

export interface Annotation {
  step: number;
  model: string;
  /** The move of the annotated game. */
  teacher: number | null;
  preferred: number | null;
  probability: number | null;
  p1: FourValues | null;
  logp: FourValues | null;
  hard: FourValues | null;
  bins: (number[] | null)[] | null;
}

export interface PolicyValues {
  name: string;
  values: (FourValues | null)[];
}

export interface PositionMove {
  move: number;
  num_steps: number;
  mean_score: number | null;
  max_score: number | null;
  mean_value: number | null;
  num_engines: number;
}

export interface Place {
  run_id: number;
  step_index: number;
  engine: string | null;
  max_score: number;
  num_steps: number;
  move: number | null;
  value: number | null;
  symmetry: number | string;
}

export interface Position extends Board {
  canonical: string;
  canonical_mask: number;
  num_found: number;
  seconds: number;
  after: ((Board & { reward: number }) | null)[];
  moves: PositionMove[];
  next: { board: string; tile_65536_mask: number; move: number; num_steps: number }[];
  places: Place[];
}

/** A value of a result: lists are arrays, structs objects, and integers above 2^53 strings. */
export type Value = null | boolean | number | string | Value[] | { [name: string]: Value };

export interface ResultColumn {
  name: string;
  type: string;
  board: boolean;
}

export interface QueryResult {
  columns: ResultColumn[];
  rows: Value[][];
  num_rows: number;
  has_more: boolean;
  seconds: number;
  sql: string;
}

export type Params = Record<string, Value>;

export type DownloadFormat = "parquet" | "csv" | "arrow" | "jsonl";

export interface Column {
  name: string;
  type: string;
  doc: string;
}

export interface Schema {
  tables: { name: string; columns: Column[] }[];
  functions: { name: string; call: string; type: string; doc: string; example: string; result: string }[];
  queries: { name: string; purpose: string; sql: string }[];
}

export interface ReportRequest {
  where: string;
  by: "engine" | "version" | "format" | "session";
  compare: [string, string] | null;
}

export interface Report {
  version: number;
  url: string;
  seconds: number;
}
