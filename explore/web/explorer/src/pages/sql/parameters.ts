// A form for the parameters of a query.

import type { Params, Value } from "../../api/types";
import type { Context } from "../../context";
import { boardOf } from "../../board";
import { el } from "../../dom";
import { parseBoard } from "../positions/parse";
import { prose } from "./prose";
import type { Parameter } from "./statement";

const PHASES = ["early", "mid", "late"];
let forms = 0;

export class ParameterForm {
  readonly element = el("div", { class: "parameters" });
  readonly #context: Context;
  readonly #prefix: string;
  #parameters: Parameter[] = [];
  #fields = new Map<string, HTMLInputElement | HTMLSelectElement>();

  constructor(context: Context) {
    this.#context = context;
    forms += 1;
    this.#prefix = `parameters-${forms}`;
  }

  /** Shows fields for `parameters`. A field that stays keeps its text. */
  show(parameters: Parameter[], texts: Record<string, string> = this.texts()): void {
    if (JSON.stringify(parameters) !== JSON.stringify(this.#parameters)) this.#build(parameters);
    for (const [name, field] of this.#fields) field.value = texts[name] ?? "";
    this.element.hidden = parameters.length === 0;
  }

  /** The texts of the fields that have one. */
  texts(): Record<string, string> {
    const entries = [...this.#fields].map(([name, { value }]) => [name, value] as const);
    return Object.fromEntries(entries.filter(([, text]) => text !== ""));
  }

  /**
   * The values of the parameters. Empty fields have their defaults, which `withDefaults` includes. Throws an error that
   * names the first parameter without a value.
   */
  values(withDefaults: boolean): Params {
    const values: Params = {};
    for (const parameter of this.#parameters) {
      const { name, type } = parameter;
      const field = this.#fields.get(name);
      const isInvalid = field !== undefined && !field.validity.valid;
      if (isInvalid) field.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
      if (isInvalid) throw new Error(`${name}: expected ${type ?? "a value"}`);
      const text = field?.value ?? "";
      if (text !== "") {
        values[name] = isBoard(parameter) ? boardNumber(name, text) : valueOf(text, type);
      } else if (parameter.default === null && type !== null) {
        field?.setAttribute("aria-invalid", "true");
        field?.focus();
        throw new Error(`${name}: the parameter has no default. Write a value of type ${type}.`);
      } else if (withDefaults) {
        values[name] = parameter.default === null ? null : valueOf(parameter.default, type);
      }
    }
    return values;
  }

  #build(parameters: Parameter[]): void {
    this.#parameters = parameters;
    this.#fields = new Map();
    this.element.replaceChildren(...parameters.map((parameter) => this.#row(parameter)));
  }

  #row(parameter: Parameter): HTMLElement {
    const { name, type, doc } = parameter;
    const id = `${this.#prefix}-${name}`;
    const [field, list] = this.#field(parameter, id);
    this.#fields.set(name, field);
    field.addEventListener("input", () => field.removeAttribute("aria-invalid"));
    return el(
      "div",
      { class: "parameter" },
      el("label", { for: id }, el("code", {}, name), " ", el("span", { class: "hint" }, type ?? "any type")),
      field,
      list,
      doc === "" ? null : el("p", { class: "hint", id: `${id}-doc` }, ...prose(doc)),
    );
  }

  #field(parameter: Parameter, id: string): [HTMLInputElement | HTMLSelectElement, HTMLElement | null] {
    const { name, type, doc } = parameter;
    const common = { id, "aria-describedby": doc === "" ? null : `${id}-doc` };
    const preset = parameter.default ?? (type === null ? "null" : "required");
    if (type === "bool") return [choice(common, preset, ["true", "false"]), null];
    if (name === "phase" && type === "string") return [choice(common, preset, PHASES), null];
    if (isBoard(parameter)) {
      const placeholder = `${preset}: 16 hex digits, a number or 16 tiles`;
      return [el("input", { ...common, autocomplete: "off", spellcheck: "false", placeholder }), null];
    }
    if (type !== null && /int|float/.test(type)) {
      const step = type.startsWith("float") ? "any" : 1;
      const min = type.startsWith("uint") ? 0 : null;
      return [el("input", { ...common, type: "number", step, min, placeholder: preset }), null];
    }
    const known = this.#known(name);
    const list = known.length === 0 ? null : el("datalist", { id: `${id}-list` });
    list?.append(...known.map((value) => el("option", { value })));
    const attributes = { list: list === null ? null : `${id}-list`, autocomplete: "off", spellcheck: "false" };
    return [el("input", { ...common, ...attributes, placeholder: preset }), list];
  }

  /** The values that the archive has for a parameter of this name. */
  #known(name: string): string[] {
    const { engines, models } = this.#context.archive;
    if (name === "engine") return engines.filter((engine) => engine !== null);
    return name === "model" ? models : [];
  }
}

function choice(attributes: Record<string, string | null>, preset: string, values: string[]): HTMLSelectElement {
  const options = values.map((value) => el("option", { value }, value));
  return el("select", attributes, el("option", { value: "" }, `default: ${preset}`), ...options);
}

/** The value of a text. Without a type, the form of the text decides: 12, 0.5, true, null, or a string. */
function valueOf(text: string, type: string | null): Value {
  if (text === "null") return null;
  if (type === "string") return text;
  if (text === "true" || text === "false") return text === "true";
  const number = Number(text);
  if (text.trim() !== "" && Number.isFinite(number)) {
    return Number.isInteger(number) && !Number.isSafeInteger(number) ? exactInteger(text.trim()) : number;
  }
  return /^'.*'$/.test(text) ? text.slice(1, -1) : text;
}

/** A large integer, which JSON.stringify writes with all its digits where the browser has JSON.rawJSON. */
function exactInteger(digits: string): Value {
  const { rawJSON } = JSON as { rawJSON?: (text: string) => Value };
  return rawJSON === undefined || !/^-?\d+$/.test(digits) ? Number(digits) : rawJSON(digits);
}

function isBoard({ name, type }: Parameter): boolean {
  return type === "uint64" && /(^|_)(board|position)$/.test(name);
}

/** The number of a board in any form that the page Positions reads. */
function boardNumber(name: string, text: string): Value {
  const parsed = parseBoard(text);
  if ("error" in parsed) throw new Error(`${name}: ${parsed.error.replace(/^Board: /, "")}`);
  return exactInteger(String(BigInt(`0x${boardOf(parsed.cells).board}`)));
}
