// Notes on positions: the editor beside the board, and the list of all notes.

import type { Api } from "../../api/client";
import { errorText, isAbort } from "../../api/client";
import type { DownloadFormat, Note } from "../../api/types";
import { showDialog } from "../../dialog";
import { announce, el } from "../../dom";
import { count, formatTime } from "../../format";
import { runRoute } from "../../router";

const MARKS = ["!", "!!", "?", "??", "!?", "interesting", "mistake"];
const MAX_LENGTH = 4096;
const QUERY = "SELECT * FROM notes ORDER BY run_id, step_index";

/** All notes of the archive. */
export class NoteStore {
  readonly #api: Api;
  readonly #onChange: () => void;
  readonly #controller = new AbortController();
  notes: Note[] = [];

  constructor(api: Api, onChange: () => void) {
    this.#api = api;
    this.#onChange = onChange;
  }

  async load(): Promise<void> {
    try {
      this.#set((await this.#api.notes(this.#controller.signal)).notes);
    } catch (error) {
      // The banner reports a lost connection. The page works without notes.
      if (!isAbort(error)) this.#set([]);
    }
  }

  async save(note: Omit<Note, "written">): Promise<void> {
    this.#set((await this.#api.putNote(note)).notes);
  }

  of(runId: number): Note[] {
    return this.notes.filter((note) => note.run_id === runId);
  }

  stop(): void {
    this.#controller.abort();
  }

  #set(notes: Note[]): void {
    this.notes = notes;
    this.#onChange();
  }
}

/** Texts that were not saved, by run and step. They stay while the reader looks at other positions and pages. */
const drafts = new Map<string, { mark: string; note: string }>();

/** Edits the note of the shown position. */
export class NoteEditor {
  readonly element: HTMLElement;
  readonly #store: NoteStore;
  readonly #runId: number;
  readonly #mark = el("input", {
    type: "text",
    maxlength: 40,
    list: "note-marks",
    id: "note-mark",
    autocomplete: "off",
  });
  readonly #note = el("textarea", { rows: 3, maxlength: MAX_LENGTH, id: "note-text" });
  readonly #status = el("span", { class: "hint" });
  #step = 0;

  constructor(store: NoteStore, runId: number, showAll: () => void) {
    this.#store = store;
    this.#runId = runId;
    const save = el("button", { type: "submit", class: "primary", title: "Save (Ctrl+Enter)" }, "Save");
    const all = el("button", { type: "button" }, "All notes");
    all.addEventListener("click", showAll);
    const form = el(
      "form",
      { class: "note-form" },
      el("label", { for: "note-mark" }, "Mark"),
      this.#mark,
      el("datalist", { id: "note-marks" }, ...MARKS.map((value) => el("option", { value }))),
      el("label", { for: "note-text" }, "Note"),
      this.#note,
      el("div", { class: "note-actions" }, save, all, this.#status),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#save();
    });
    form.addEventListener("input", () => {
      drafts.set(this.#key(this.#step), this.#texts);
      this.#status.textContent = "Not saved";
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.#save();
      if (event.key === "Escape" && document.activeElement instanceof HTMLElement) document.activeElement.blur();
    });
    this.element = el("section", { class: "notes", "aria-label": "Note on this position" }, el("h2", {}, "Note"), form);
  }

  show(step: number): void {
    if (step !== this.#step) this.#status.textContent = "";
    this.#step = step;
    const draft = drafts.get(this.#key(step));
    const texts = draft ?? this.#saved(step) ?? { mark: "", note: "" };
    if (draft !== undefined) this.#status.textContent = "Not saved";
    if (this.#mark.value !== texts.mark) this.#mark.value = texts.mark;
    if (this.#note.value !== texts.note) this.#note.value = texts.note;
  }

  focus(): void {
    this.#note.focus();
  }

  #key(step: number): string {
    return `${this.#runId} ${step}`;
  }

  get #texts(): { mark: string; note: string } {
    return { mark: this.#mark.value.trim(), note: this.#note.value };
  }

  #saved(step: number): Note | undefined {
    return this.#store.notes.find((note) => note.run_id === this.#runId && note.step_index === step);
  }

  async #save(): Promise<void> {
    const step = this.#step;
    const texts = this.#texts;
    this.#status.textContent = "Saving…";
    try {
      drafts.delete(this.#key(step));
      await this.#store.save({ run_id: this.#runId, step_index: step, ...texts });
      this.#status.textContent = texts.mark === "" && texts.note === "" ? "Removed" : "Saved";
    } catch (error) {
      drafts.set(this.#key(step), texts);
      this.#status.textContent = errorText(error);
    }
    announce(this.#status.textContent);
  }
}

/** Shows all notes with links, and offers them as files. */
export function showNotes(api: Api, notes: Note[], path: string | null): void {
  const status = el("p", { class: "error", role: "alert" });
  const download = (format: DownloadFormat, label: string): HTMLElement => {
    const button = el("button", { type: "button", disabled: notes.length === 0 }, label);
    button.addEventListener("click", () => {
      api.download({ sql: QUERY }, {}, format).catch((error: unknown) => {
        status.textContent = errorText(error);
      });
    });
    return button;
  };
  const dialog = showDialog(
    "All notes",
    el("p", {}, count(notes.length, "note"), path === null ? "" : " in ", path === null ? null : el("code", {}, path)),
    notes.length === 0
      ? el("p", { class: "hint" }, "Notes on positions appear here, and in SQL as the table notes.")
      : noteTable(notes),
    el("div", { class: "actions" }, download("parquet", "Download Parquet"), download("csv", "Download CSV")),
    status,
  );
  dialog.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("a")) dialog.close();
  });
}

function noteTable(notes: Note[]): HTMLElement {
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Notes" },
    el(
      "table",
      { class: "note-table" },
      el(
        "thead",
        {},
        el("tr", {}, ...["Position", "Mark", "Note", "Written"].map((title) => el("th", { scope: "col" }, title))),
      ),
      el(
        "tbody",
        {},
        ...notes.map(({ run_id, step_index, mark, note, written }) =>
          el(
            "tr",
            {},
            el("td", {}, el("a", { href: runRoute(run_id, step_index) }, `run ${run_id}, step ${step_index}`)),
            el("td", {}, mark),
            el("td", { class: "note-text" }, note),
            el("td", {}, formatTime(written)),
          ),
        ),
      ),
    ),
  );
}
