// A position: an editor of the board, and the places of this position in the archive.

import type { Board } from "../../api/types";
import { boardOf, boardText, exponents } from "../../board";
import type { Context } from "../../context";
import { announce, copyButton, debounce, el } from "../../dom";
import type { Mounted, Page, Route } from "../../router";
import { formatRoute, positionRoute } from "../../router";
import { SYMMETRIES, turnBoard } from "../../symmetry";
import { BoardEditor } from "./editor";
import { palette } from "./palette";
import { parseBoard } from "./parse";
import { isSame, Path } from "./path";
import { Search } from "./search";

const EMPTY: Board = { board: "0".repeat(16), mask: 0 };
const HELP =
  "Click doubles a tile, right click or Shift + click halves it. Keys: arrows move, digits set the tile, " +
  "+ and − double and halve, Backspace empties.";
/** The symmetries that have a button; together they make all eight. */
const TURNS = [
  ["⟳", "Turn right", 1],
  ["⟲", "Turn left", 3],
  ["⇆", "Mirror left to right", 4],
  ["⇅", "Mirror top to bottom", 5],
] as const;

export const positionsPage: Page = { title: "Positions", mount };

function mount(root: HTMLElement, route: Route, context: Context): Mounted {
  let shown: Board = EMPTY;
  let canonical: Board | null = null;
  let past: Board[] = [];
  const path = new Path();
  const search = new Search(
    context,
    (board) => path.push(board),
    (position) => {
      canonical = { board: position.canonical, mask: position.canonical_mask };
      toCanonical.disabled = isSame(canonical, shown);
    },
  );
  const searchSoon = debounce(250, () => void search.start(shown));
  const editor = new BoardEditor((cells) => edited(boardOf(cells)));

  const undo = button("Undo", () => {
    const last = past.pop();
    if (last !== undefined) display(last);
  });
  const clear = button("Clear", () => change(EMPTY));
  const toCanonical = button("Canonical", () => canonical !== null && change(canonical));
  toCanonical.title = "Show the canonical one of the eight symmetric boards";
  const turns = TURNS.map(([sign, name, index]) => {
    const symmetry = SYMMETRIES[index];
    const element = button(sign, () => symmetry && change(turnBoard(shown.board, shown.mask, symmetry)));
    element.title = name;
    element.setAttribute("aria-label", name);
    return element;
  });

  const field = el("input", {
    id: "board-text",
    class: "mono",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "board-text-help board-text-error",
  });
  const fieldError = el("p", { class: "error", id: "board-text-error", role: "alert", hidden: true });
  const form = el(
    "form",
    { class: "board-text" },
    el("label", { for: "board-text" }, "Board as text"),
    el("div", { class: "field-row" }, field, el("button", { type: "submit" }, "Show")),
    el("p", { class: "hint", id: "board-text-help" }, "16 hex digits, a decimal number, 16 tiles, or a JSON list."),
    fieldError,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    read(field.value);
  });
  const facts = el("p", { class: "hint board-facts" });
  const sqlLink = el("a", {}, "Search with SQL");

  /** Reads a board that the reader typed or pasted. */
  function read(text: string): void {
    const parsed = parseBoard(text);
    const isError = "error" in parsed;
    fieldError.hidden = !isError;
    if (isError) {
      field.setAttribute("aria-invalid", "true");
      fieldError.textContent = parsed.error;
      field.value = text.trim().slice(0, 200);
      return;
    }
    announce(`Read as ${parsed.form}`);
    change(boardOf(parsed.cells));
  }

  /** Shows another board, with an entry in the history. */
  function change(board: Board): void {
    if (isSame(board, shown)) return;
    past.push(shown);
    context.navigate(positionRoute(board.board, board.mask));
  }

  /** Takes a change of one cell. The address follows without a new entry in the history. */
  function edited(board: Board): void {
    past.push(shown);
    shown = board;
    path.goTo(board);
    showFacts();
    context.navigate(positionRoute(board.board, board.mask), { replace: true });
    search.cancel();
    searchSoon();
  }

  /** Shows a board in place of the current one. */
  function display(board: Board): void {
    context.navigate(positionRoute(board.board, board.mask), { replace: true });
    open(board);
  }

  function open(board: Board): void {
    shown = board;
    editor.show(exponents(board.board, board.mask));
    path.goTo(board);
    showFacts();
    searchSoon.cancel();
    void search.start(board);
  }

  function showFacts(): void {
    const { board, mask } = shown;
    const isEmpty = isSame(shown, EMPTY);
    canonical = null;
    toCanonical.disabled = true;
    undo.disabled = past.length === 0;
    clear.disabled = isEmpty;
    field.value = mask === 0 ? board : JSON.stringify(exponents(board, mask).map((exp) => (exp === 0 ? 0 : 2 ** exp)));
    field.removeAttribute("aria-invalid");
    fieldError.hidden = true;
    facts.hidden = isEmpty;
    facts.textContent = `uint64 ${numberOf(shown)}${mask === 0 ? "" : ` · tile_65536_mask ${mask}`}`;
    sqlLink.href = formatRoute(["sql"], { q: statement(shown) });
    sqlLink.hidden = isEmpty;
    context.setTitle(isEmpty ? "Positions" : `Position ${board}`);
  }

  const onPaste = (event: ClipboardEvent): void => {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text.trim() === "") return;
    event.preventDefault();
    read(text);
  };
  document.addEventListener("paste", onPaste);
  // A text with several lines loses its line breaks in a field of one line, so it is read at once.
  field.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!("cells" in parseBoard(text))) return;
    event.preventDefault();
    read(text);
  });

  root.append(
    el("h1", {}, "Positions"),
    path.element,
    el(
      "div",
      { class: "position-layout" },
      el(
        "section",
        { class: "position-editor", "aria-label": "Board" },
        editor.element,
        el("p", { class: "hint", id: "editor-help" }, HELP),
        palette((brush) => editor.setBrush(brush)),
        el("div", { class: "board-tools" }, undo, clear, ...turns, toCanonical),
        form,
        facts,
        el(
          "div",
          { class: "board-tools" },
          copyButton("Copy hex", null, () => shown.board),
          copyButton("Copy number", null, () => numberOf(shown)),
          copyButton("Copy text", null, () => boardText(exponents(shown.board, shown.mask))),
          sqlLink,
        ),
      ),
      search.element,
    ),
  );
  context.setShortcuts([
    { keys: ["e"], doc: "Go to the board", run: () => editor.focus() },
    { keys: ["/"], doc: "Write the board as text", run: () => field.select() },
    { keys: ["u"], doc: "Undo", run: () => undo.click() },
    { keys: ["r"], doc: "Turn right", run: () => turns[0]?.click() },
    { keys: ["m"], doc: "Mirror left to right", run: () => turns[2]?.click() },
    { keys: ["c"], doc: "Show the canonical board", run: () => toCanonical.click() },
    { keys: [], label: "↑ ↓ ← →", doc: "On the board: previous and next cell", run: () => false },
    { keys: [], label: "2 4 8 …", doc: "On the board: set the tile", run: () => false },
    { keys: [], label: "+ −", doc: "On the board: double and halve the tile", run: () => false },
    { keys: [], label: "Backspace", doc: "On the board: empty the cell", run: () => false },
    { keys: [], label: "Ctrl + V", doc: "Paste a board", run: () => false },
  ]);
  context.onArchive(() => void search.start(shown));
  openRoute(route);

  function openRoute(next: Route): void {
    const board = boardOfRoute(next);
    open(board ?? EMPTY);
    if (board === null) read(next.path[1] ?? "");
  }

  return {
    update(next) {
      openRoute(next);
      return true;
    },
    leave() {
      searchSoon.cancel();
      search.cancel();
      editor.leave();
      document.removeEventListener("paste", onPaste);
    },
  };
}

/** The board of an address; null if it is no board. An address without a board is the empty one. */
function boardOfRoute({ path }: Route): Board | null {
  const [, text, word, mask = "0"] = path;
  if (text === undefined) return EMPTY;
  const parsed = parseBoard(word === "mask" ? `position/${text}/mask/${mask}` : text);
  return "cells" in parsed ? boardOf(parsed.cells) : null;
}

/** The number of a board in the archive. */
function numberOf({ board }: Board): string {
  return String(BigInt(`0x${board}`));
}

/** A statement that finds a position. */
function statement(board: Board): string {
  const number = numberOf(board);
  return [
    "SELECT run_id, step_index, engine, max_score, board, move",
    "FROM steps",
    `WHERE canonical(board, tile_65536_mask) = canonical(${number}, ${board.mask})`,
    `  AND canonical_mask(board, tile_65536_mask) = canonical_mask(${number}, ${board.mask})`,
    "ORDER BY max_score DESC",
  ].join("\n");
}

function button(text: string, press: () => void): HTMLButtonElement {
  const element = el("button", { type: "button" }, text);
  element.addEventListener("click", press);
  return element;
}
