// Buttons that download all rows of a query as a file.

import { errorText } from "../../api/client";
import type { DownloadFormat, Params } from "../../api/types";
import type { Context } from "../../context";
import { el } from "../../dom";
import type { Source } from "./source";

const FORMATS: [DownloadFormat, string][] = [
  ["parquet", "Parquet"],
  ["csv", "CSV"],
  ["arrow", "Arrow"],
  ["jsonl", "JSON Lines"],
];

/** The downloads run the query again, without a limit of rows. */
export function downloads({ api }: Context, source: Source, params: Params): HTMLElement {
  const message = el("span", { class: "error", role: "alert" });
  const buttons = FORMATS.map(([format, name]) => {
    const button = el("button", { type: "button", "aria-label": `Download as ${name}` }, name);
    button.addEventListener("click", () => {
      message.textContent = "";
      button.disabled = true;
      api
        .download(source, params, format)
        .catch((error: unknown) => (message.textContent = errorText(error)))
        .finally(() => (button.disabled = false));
    });
    return button;
  });
  return el("div", { class: "downloads" }, el("span", { class: "hint" }, "Download all rows:"), ...buttons, message);
}
