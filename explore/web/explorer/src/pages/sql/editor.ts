// The editor of statements.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
import type { Schema } from "../../api/types";
import { el } from "../../dom";
import { language } from "./dialect";
import { errorPlace } from "./errors";
import { theme } from "./theme";

export class SqlEditor {
  /**
   * The editor has its own shadow root, where CodeMirror uses constructed style sheets. In a document, CodeMirror adds
   * a style element, which the Content-Security-Policy blocks.
   */
  readonly element = el("div", { class: "sql-editor" });
  readonly #view: EditorView;
  readonly #language = new Compartment();

  /** Calls `onRun` for Ctrl+Enter, and `onChange` after each change of the text. */
  constructor(text: string, onRun: () => void, onChange: () => void) {
    const root = this.element.attachShadow({ mode: "open" });
    const run = (): boolean => {
      onRun();
      return true;
    };
    this.#view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
          lineNumbers(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          history(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          autocompletion({ maxRenderedOptions: 200 }),
          keymap.of([...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
          placeholder("SELECT … FROM runs, steps or annotations"),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "Statement in SQL", spellcheck: "false", tabindex: "0" }),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            this.#view.dispatch(setDiagnostics(this.#view.state, []));
            onChange();
          }),
          this.#language.of([]),
          theme,
        ],
      }),
    });
    // The page's shortcuts cannot see the editor in the shadow root, so typed text would trigger them.
    this.element.addEventListener("keydown", (event) => event.stopPropagation());
  }

  get text(): string {
    return this.#view.state.doc.toString();
  }

  /** Replaces the text. Undo restores the old one. */
  set text(text: string) {
    if (text === this.text) return;
    const { length } = this.#view.state.doc;
    this.#view.dispatch({ changes: { from: 0, to: length, insert: text }, selection: { anchor: 0 } });
  }

  /** The text to run: the selection if there is one. */
  get chosen(): { sql: string; offset: number } {
    const { from, to } = this.#view.state.selection.main;
    const selected = this.#view.state.sliceDoc(from, to);
    return selected.trim() === "" ? { sql: this.text, offset: 0 } : { sql: selected, offset: from };
  }

  setSchema(schema: Schema): void {
    this.#view.dispatch({ effects: this.#language.reconfigure(language(schema)) });
  }

  /** Marks the place of an error in a statement that begins at `offset`. Returns its line and column. */
  showError(
    message: string,
    { sql, offset }: { sql: string; offset: number },
  ): { line: number; column: number } | null {
    const place = errorPlace(message, sql);
    const { length } = this.#view.state.doc;
    if (place === null || offset + place.to > length || this.text.slice(offset, offset + sql.length) !== sql) {
      this.clearError();
      return null;
    }
    const [from, to] = [offset + place.from, offset + place.to];
    this.#view.dispatch(setDiagnostics(this.#view.state, [{ from, to, severity: "error", message }]), {
      effects: EditorView.scrollIntoView(from, { y: "nearest" }),
    });
    const line = this.#view.state.doc.lineAt(from);
    return { line: line.number, column: from - line.from + 1 };
  }

  /** Inserts a text at the cursor, in place of the selection. */
  insert(text: string): void {
    this.#view.dispatch(this.#view.state.replaceSelection(text));
    this.focus();
  }

  clearError(): void {
    this.#view.dispatch(setDiagnostics(this.#view.state, []));
  }

  /** Puts the cursor at a line and column. */
  goTo({ line, column }: { line: number; column: number }): void {
    const { doc } = this.#view.state;
    const start = doc.line(Math.min(line, doc.lines));
    const anchor = Math.min(start.from + column - 1, start.to);
    this.#view.dispatch({ selection: { anchor }, scrollIntoView: true });
    this.focus();
  }

  focus(): void {
    this.#view.focus();
  }

  leave(): void {
    this.#view.destroy();
  }
}
