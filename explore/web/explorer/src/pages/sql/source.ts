// The query of the page SQL: a statement, or a named query.

import type { Params, QueryResult } from "../../api/types";
import type { Context } from "../../context";
import { formatRoute } from "../../router";
import type { Route } from "../../router";

export type Source = { sql: string } | { name: string };

/** A query with the texts of its parameters, as an address has them. */
export interface Query {
  source: Source;
  texts: Record<string, string>;
}

const PREFIX = "p.";

/** The query of an address; null if it has none. */
export function queryOf({ params }: Route): Query | null {
  const texts: Record<string, string> = {};
  for (const [name, text] of params) {
    if (name.startsWith(PREFIX)) texts[name.slice(PREFIX.length)] = text;
  }
  const [sql, name] = [params.get("q"), params.get("query")];
  if (sql !== null && sql !== "") return { source: { sql }, texts };
  return name === null ? null : { source: { name }, texts };
}

export function hashOf({ source, texts }: Query): string {
  const main: Record<string, string> = "sql" in source ? { q: source.sql } : { query: source.name };
  const rest = Object.entries(texts).map(([name, text]) => [`${PREFIX}${name}`, text]);
  return formatRoute(["sql"], { ...main, ...Object.fromEntries(rest) });
}

export function run(
  { api }: Context,
  source: Source,
  params: Params,
  limit: number,
  signal: AbortSignal,
): Promise<QueryResult> {
  return "sql" in source ? api.sql(source.sql, params, limit, signal) : api.query(source.name, params, limit, signal);
}
