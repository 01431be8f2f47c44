// The tables and functions of the archive, with their documentation.

import type { Schema } from "../../api/types";
import { el } from "../../dom";
import { prose } from "./prose";

/** The tables with their columns. A click inserts a name into the editor. */
export function tableList({ tables }: Schema, insert: (text: string) => void): HTMLElement {
  return el(
    "div",
    {},
    ...tables.map(({ name, columns }) =>
      el(
        "details",
        { class: "schema-table" },
        el("summary", {}, el("code", {}, name), ` ${columns.length} columns`),
        el(
          "ul",
          {},
          ...columns.map((column) => entry(column.name, column.type, column.doc, () => insert(column.name))),
        ),
      ),
    ),
  );
}

export function functionList({ functions }: Schema, insert: (text: string) => void): HTMLElement {
  return el(
    "ul",
    { class: "function-list" },
    ...functions.map(({ name, call, doc, example, result }) =>
      entry(call, "", `${doc} ${example} = ${result}`, () => insert(`${name}()`)),
    ),
  );
}

function entry(name: string, type: string, doc: string, insert: () => void): HTMLElement {
  const button = el("button", { type: "button", title: "Insert into the editor" }, el("code", {}, name));
  button.addEventListener("click", insert);
  return el(
    "li",
    {},
    button,
    type === "" ? null : el("span", { class: "hint" }, ` ${type}`),
    el("p", { class: "hint" }, ...prose(doc)),
  );
}
