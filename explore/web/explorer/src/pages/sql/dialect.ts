// The dialect of the archive's SQL: its words, and the completions of the editor.

import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { insertCompletionText, pickedCompletion } from "@codemirror/autocomplete";
import { schemaCompletionSource, SQLDialect } from "@codemirror/lang-sql";
import { LanguageSupport, syntaxTree } from "@codemirror/language";
import type { EditorView } from "@codemirror/view";
import type { Column, Schema } from "../../api/types";
import { el } from "../../dom";
import { prose } from "./prose";
import { parametersOf } from "./statement";

const KEYWORDS =
  "all and anti any as asc between by case cross current desc distinct else end escape except exclude " +
  "exists false fetch filter first following for from full group grouping having ilike " +
  "in inner intersect interval into is join last lateral left like limit natural not null nulls offset " +
  "on or order outer over partition preceding qualify range recursive respect ignore right rollup cube " +
  "rows row select semi sets similar some then to true unbounded union unnest using values when where " +
  "window with within";
const TYPES =
  "bigint bigint unsigned boolean bytea char date decimal double float int integer interval numeric precision real " +
  "smallint string text time timestamp tinyint unsigned varchar";
/** Functions of the engine that queries over games often need. */
const FUNCTIONS =
  "abs approx_distinct approx_percentile_cont array_agg array_length avg bool_and bool_or cast ceil coalesce concat " +
  "corr count cume_dist date_trunc dense_rank exp extract first_value floor greatest lag last_value lead least left " +
  "length ln log log2 lower max median min nullif ntile percent_rank power rank regexp_like replace round row_number " +
  "sqrt starts_with stddev strpos substr sum to_hex trim try_cast upper var_samp";

const WORDS: Completion[] = [...new Set(`${KEYWORDS} ${TYPES}`.split(" "))].map((word) => ({
  label: word.toUpperCase(),
  type: "keyword",
  boost: -10,
}));

/** The language of the editor, with completion of everything that a statement can name. */
export function language(schema: Schema): LanguageSupport {
  const dialect = SQLDialect.define({
    keywords: KEYWORDS,
    types: TYPES,
    builtin: [...schema.functions.map(({ name }) => name), ...FUNCTIONS.split(" ")].join(" "),
    identifierQuotes: '"',
    specialVar: "$",
    operatorChars: "+-*/<>=~!@#%^&|?:",
  });
  const tables = Object.fromEntries(
    schema.tables.map(({ name, columns }) => [
      name,
      { self: { label: name, type: "type", detail: "table" }, children: columns.map(columnCompletion) },
    ]),
  );
  return new LanguageSupport(dialect.language, [
    dialect.language.data.of({ autocomplete: schemaCompletionSource({ dialect, schema: tables }) }),
    dialect.language.data.of({ autocomplete: completionSource(schema) }),
  ]);
}

function completionSource(schema: Schema): (context: CompletionContext) => CompletionResult | null {
  const functions = [...schema.functions.map(functionCompletion), ...FUNCTIONS.split(" ").map(plainFunction)];
  const queries = schema.queries.map(queryCompletion);
  return (context) => {
    const word = context.matchBefore(/\$?\w*/);
    if (word === null || (word.from === word.to && !context.explicit)) return null;
    if (context.state.sliceDoc(Math.max(word.from - 1, 0), word.from) === ".") return null;
    const node = syntaxTree(context.state).resolveInner(context.pos, -1);
    if (/Comment|String|Quoted/.test(node.name)) return null;
    const text = context.state.doc.toString();
    const parameters = parametersOf(text)
      .map(({ name }) => `$${name}`)
      .filter((label) => label !== word.text)
      .map((label) => ({ label, type: "variable", detail: "parameter" }));
    return {
      from: word.from,
      options: [...columnsOf(schema, text), ...functions, ...parameters, ...WORDS, ...queries],
      validFor: /^\$?\w*$/,
    };
  };
}

/** The columns of the tables that a text names; of all tables if it names none. */
function columnsOf(schema: Schema, text: string): Completion[] {
  const named = schema.tables.filter(({ name }) => new RegExp(`\\b${name}\\b`, "i").test(text));
  const byName = new Map<string, Completion>();
  for (const table of named.length > 0 ? named : schema.tables) {
    for (const column of table.columns) {
      if (!byName.has(column.name)) byName.set(column.name, { ...columnCompletion(column), boost: 10 });
    }
  }
  return [...byName.values()];
}

function columnCompletion({ name, type, doc }: Column): Completion {
  return { label: name, type: "property", detail: type, info: doc ? () => el("p", {}, ...prose(doc)) : undefined };
}

function functionCompletion({ name, call, type, doc, example, result }: Schema["functions"][number]): Completion {
  return {
    label: name,
    type: "function",
    detail: call.startsWith(name) ? call.slice(name.length) : call,
    boost: 5,
    info: () =>
      el(
        "div",
        {},
        el("p", {}, el("code", {}, `${call} → ${type}`)),
        el("p", {}, ...prose(doc)),
        example === "" ? null : el("p", {}, el("code", {}, `${example} = ${result}`)),
      ),
    apply: applyCall(name),
  };
}

function plainFunction(name: string): Completion {
  return { label: name, type: "function", detail: "(…)", apply: applyCall(name) };
}

/** Inserts a call with the cursor between its parentheses. */
function applyCall(name: string): (view: EditorView, completion: Completion, from: number, to: number) => void {
  return (view, completion, from, to) => {
    const isCalled = view.state.sliceDoc(to, to + 1) === "(";
    view.dispatch({
      changes: { from, to, insert: isCalled ? name : `${name}()` },
      selection: { anchor: from + name.length + 1 },
      annotations: pickedCompletion.of(completion),
      userEvent: "input.complete",
    });
  };
}

function queryCompletion({ name, purpose, sql: text }: Schema["queries"][number]): Completion {
  return {
    label: name,
    type: "text",
    detail: "named query",
    info: () => el("p", {}, ...prose(purpose)),
    boost: -60,
    apply: (view: EditorView, _: Completion, from: number, to: number) =>
      view.dispatch(insertCompletionText(view.state, text.trimEnd(), from, to)),
  };
}
