// The command line that repeats a query.

import type { Cell, Result } from "./data";

/** Quotes an argument for a POSIX shell. */
export function quote(argument: string): string {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(argument)) return argument;
  return `'${argument.replaceAll("'", "'\\''")}'`;
}

/** The value of `-p NAME=VALUE`. The command reads a JSON scalar as such and any other value as text. */
function parameter(value: Cell): string {
  if (typeof value !== "string") return JSON.stringify(value);
  const isScalar = /^\s*(null|true|false|".*"|-?[0-9].*)\s*$/s.test(value);
  return isScalar ? JSON.stringify(value) : value;
}

/** The command line for a result: `a2store query games.a2 tile_reach -p min_tile=2048`. */
export function commandLine(archive: string, result: Result): string {
  const path = archive.startsWith("-") ? `./${archive}` : archive;
  const words = ["a2store", "query", path, result.query];
  for (const [name, value] of Object.entries(result.parameters)) words.push("-p", `${name}=${parameter(value)}`);
  return words.map(quote).join(" ");
}
