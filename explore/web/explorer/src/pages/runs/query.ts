// The query of the list, its address and its SQL.

import type { RunFilter, RunsRequest } from "../../api/types";
import type { Route } from "../../router";
import { COLUMNS } from "./columns";

export type RunQuery = Pick<RunsRequest, "filter" | "where" | "sort" | "descending">;

export const RANGES = [
  "min_score",
  "max_score",
  "min_steps",
  "max_steps",
  "min_tile",
  "max_tile",
  "run_id",
] as const satisfies (keyof RunFilter)[];

const SQL_RANGES: Record<(typeof RANGES)[number], string> = {
  min_score: "max_score >=",
  max_score: "max_score <=",
  min_steps: "num_steps >=",
  max_steps: "num_steps <=",
  min_tile: "highest_tile >=",
  max_tile: "highest_tile <=",
  run_id: "run_id =",
};

const DEFAULT_SORT = "run_id";

export function queryOf(route: Route): RunQuery {
  const { params } = route;
  const filter: RunFilter = {};
  const engines: (string | null)[] = params.getAll("engine");
  if (params.has("unknown_engine")) engines.push(null);
  if (engines.length > 0) filter.engines = engines;
  for (const name of RANGES) {
    const text = params.get(name);
    const value = Number(text);
    if (text !== null && text !== "" && Number.isSafeInteger(value) && value >= 0) filter[name] = value;
  }
  const sort = COLUMNS.find(({ name }) => name === params.get("sort"))?.name ?? DEFAULT_SORT;
  return { filter, where: params.get("where") ?? "", sort, descending: params.get("order") === "descending" };
}

export function hashOf({ filter, where, sort, descending }: RunQuery): string {
  const params = new URLSearchParams();
  if (where !== "") params.set("where", where);
  for (const engine of filter.engines ?? []) {
    if (engine === null) params.set("unknown_engine", "1");
    else params.append("engine", engine);
  }
  for (const name of RANGES) {
    const value = filter[name];
    if (value !== undefined) params.set(name, String(value));
  }
  if (sort !== DEFAULT_SORT || descending) params.set("sort", sort);
  if (descending) params.set("order", "descending");
  const text = params.toString();
  return text === "" ? "#/runs" : `#/runs?${text}`;
}

/** The list as a statement for the page SQL. */
export function sqlOf({ filter, where, sort, descending }: RunQuery): string {
  // A line break ends a comment at the end of the condition.
  const conditions = where === "" ? [] : [where.includes("--") ? `(${where}\n)` : `(${where})`];
  const engines = filter.engines ?? [];
  const names = engines.filter((engine) => engine !== null).map((engine) => `'${engine.replaceAll("'", "''")}'`);
  const choice = [
    ...(names.length > 0 ? [`engine IN (${names.join(", ")})`] : []),
    ...(engines.includes(null) ? ["engine IS NULL"] : []),
  ];
  if (choice.length > 0) conditions.push(choice.length === 1 ? `${choice[0]}` : `(${choice.join(" OR ")})`);
  for (const name of RANGES) {
    const value = filter[name];
    if (value !== undefined) conditions.push(`${SQL_RANGES[name]} ${value}`);
  }
  const condition = conditions.length === 0 ? "" : `\nWHERE ${conditions.join("\n  AND ")}`;
  const columns = COLUMNS.map(({ name }) => name).join(", ");
  // Rows without a value are last in both directions, and equal rows are in the order of the runs.
  const direction = descending ? " DESC" : "";
  const order = sort === "run_id" ? `run_id${direction}` : `${sort}${direction} NULLS LAST, run_id${direction}`;
  return `SELECT ${columns}\nFROM runs${condition}\nORDER BY ${order}`;
}

/** The number of conditions. */
export function countConditions({ filter, where }: RunQuery): number {
  return Object.values(filter).filter((value) => value !== undefined).length + (where === "" ? 0 : 1);
}
