// The place of an error in a statement, from its message.

export interface ErrorPlace {
  from: number;
  to: number;
}

/** The forms of messages that quote the word with the error. */
const NAMES = [
  /No field named ([^\s.]+(?:\.[^\s.]+)*)/,
  /Invalid function '([^']+)'/,
  /Function '([^']+)'/,
  /the (?:table|function|parameter|column) '?([\w.$"]+?)'?[:;,.\s]/,
  /parameters? (\$\w+)/,
  /table '([^']+)'/,
  /^refused: (\w+)/,
];

/** Finds the place of an error in a statement; null if its message names none. */
export function errorPlace(message: string, sql: string): ErrorPlace | null {
  const position = /Line: (\d+), Column: (\d+)/i.exec(message);
  if (position !== null) return wordAt(sql, Number(position[1]), Number(position[2]));
  for (const pattern of NAMES) {
    const name = pattern.exec(message)?.[1]?.replaceAll(/["']/g, "");
    const place = name === undefined ? null : (find(sql, name) ?? find(sql, name.split(".").at(-1) ?? name));
    if (place !== null) return place;
  }
  return null;
}

function find(sql: string, name: string): ErrorPlace | null {
  const pattern = new RegExp(`(?<![\\w$])${name.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")}(?!\\w)`, "i");
  // Spaces replace comments, so that all places stay the same.
  const code = sql.replaceAll(/--[^\n]*/g, (comment) => " ".repeat(comment.length));
  const found = pattern.exec(code);
  return found === null ? null : { from: found.index, to: found.index + name.length };
}

function wordAt(sql: string, line: number, column: number): ErrorPlace | null {
  const lines = sql.split("\n");
  if (line < 1 || line > lines.length) return null;
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  const from = Math.min(start + column - 1, sql.length);
  const length = /^\w+|^\S/.exec(sql.slice(from))?.[0].length ?? 0;
  return length > 0 ? { from, to: from + length } : { from: Math.max(from - 1, 0), to: from };
}
