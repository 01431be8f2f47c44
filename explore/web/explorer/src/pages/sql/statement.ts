// The parameters of a statement, and its text for lists.

/** A parameter of a statement or a named query. `type` is null if the statement does not declare it. */
export interface Parameter {
  name: string;
  type: string | null;
  /** The default as text; null = the value is required. */
  default: string | null;
  doc: string;
}

const TOKEN = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|\$([A-Za-z_]\w*)/g;
/** A parameter in the header of a named query: `--   limit int64 = 100: the maximum number of rows`. */
const DECLARATION = /^--   (\w+) (\w+)(?: = ([^\n]*?))?: ([^\n]*(?:\n--     [^\n]*)*)/gm;

/**
 * The parameters that a statement uses. Parameters that a header declares come first, in its order, with their types
 * and defaults. Others follow in the order of their first use.
 */
export function parametersOf(sql: string): Parameter[] {
  const names = new Set<string>();
  for (const [, name] of sql.matchAll(TOKEN)) {
    if (name !== undefined) names.add(name);
  }
  const header = /-- Parameters:\n((?:--[^\n]*\n)*?)(?:--\n|(?!--))/.exec(sql)?.[1] ?? "";
  const declared = new Map<string, Parameter>();
  for (const [, name = "", type = "", value, doc = ""] of header.matchAll(DECLARATION)) {
    declared.set(name, { name, type, default: value ?? null, doc: doc.replaceAll(/\n--\s+/g, " ") });
  }
  const inOrder = [...declared.keys()].filter((name) => names.has(name));
  const others = [...names].filter((name) => !declared.has(name));
  return [...inOrder, ...others].map((name) => declared.get(name) ?? { name, type: null, default: null, doc: "" });
}

/** The first words of a statement without its comments, for a list. */
export function summaryOf(sql: string): string {
  const text = sql
    .replaceAll(TOKEN, (token) => (token.startsWith("--") || token.startsWith("/*") ? " " : token))
    .replaceAll(/\s+/g, " ")
    .trim();
  return text.length > 160 ? `${text.slice(0, 159)}…` : text;
}
