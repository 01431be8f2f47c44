// The looks of the editor. Its colours are custom properties of the page, so they follow the theme.

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const highlighting = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null], color: "var(--code-keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.standard(tags.name), tags.function(tags.name)], color: "var(--code-function)" },
  { tag: tags.typeName, color: "var(--code-type)" },
  { tag: tags.special(tags.name), color: "var(--code-parameter)", fontWeight: "600" },
]);

const looks = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--background)", fontSize: "0.93rem", borderRadius: "5px" },
  "&.cm-focused": { outline: "2px solid var(--link)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", maxHeight: "38vh" },
  ".cm-content": { caretColor: "var(--text)", padding: "6px 0" },
  ".cm-content, .cm-gutter": { minHeight: "7.5em" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": {
    color: "var(--faint)",
    backgroundColor: "var(--surface)",
    borderRight: "1px solid var(--line)",
  },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--selected) 35%, transparent)" },
  ".cm-activeLineGutter": { color: "var(--text)", backgroundColor: "transparent" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "var(--selected)" },
  ".cm-selectionBackground": { backgroundColor: "var(--selected)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--note)", color: "inherit" },
  ".cm-placeholder": { color: "var(--faint)" },
  ".cm-tooltip": {
    color: "var(--text)",
    backgroundColor: "var(--background)",
    border: "1px solid var(--line)",
    borderRadius: "5px",
    boxShadow: "0 2px 8px rgb(0 0 0 / 20%)",
    zIndex: "5",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", maxHeight: "16em", minWidth: "18em" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": { padding: "2px 6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { color: "var(--text)", backgroundColor: "var(--selected)" },
  ".cm-completionDetail": { color: "var(--faint)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700" },
  ".cm-completionIcon": { color: "var(--faint)", opacity: "1" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "26em", padding: "6px 10px", fontSize: "0.87rem", lineHeight: "1.4" },
  ".cm-completionInfo p": { margin: "0 0 6px" },
  ".cm-completionInfo p:last-child": { margin: "0" },
  ".cm-completionInfo code": { fontFamily: "var(--mono)", overflowWrap: "anywhere" },
  ".cm-diagnostic": { fontFamily: "inherit", whiteSpace: "pre-wrap", padding: "4px 8px" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--error)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--error)",
    textUnderlineOffset: "3px",
  },
});

export const theme: Extension = [looks, syntaxHighlighting(highlighting)];
