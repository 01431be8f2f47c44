// The frame around the pages: name of the archive, navigation, settings and banners.

import type { Connection } from "./api/client";
import type { Archive, ArchiveChange } from "./api/types";
import { count, formatNumber } from "./format";
import { el } from "./dom";
import { formatRoute } from "./router";
import type { Settings } from "./settings";
import { PALETTES, THEMES } from "./settings";

const PALETTE_NAMES = { classic: "classic", safe: "colour-blind safe" } as const;

export class Shell {
  readonly #facts = el("p", { class: "facts" });
  readonly #name = el("a", { class: "archive-name", href: "#/runs" });
  readonly #links: Map<string, HTMLAnchorElement>;
  readonly #news = el("div", { class: "banner news", role: "status", hidden: true });
  readonly #trouble = el("div", { class: "banner trouble", role: "alert", hidden: true });

  constructor(settings: Settings, showKeys: () => void) {
    const link = (name: string, title: string): [string, HTMLAnchorElement] => [
      name,
      el("a", { href: `#/${name}` }, title),
    ];
    this.#links = new Map([
      link("runs", "Runs"),
      link("run", "Replay"),
      link("position", "Positions"),
      link("sql", "SQL"),
      link("overview", "Overview"),
    ]);
    this.setLastRun(null);
    document
      .getElementById("header")
      ?.replaceChildren(
        el("div", { class: "about" }, this.#name, this.#facts),
        el("nav", { "aria-label": "Pages" }, ...this.#links.values()),
        settingFields(settings, showKeys),
      );
    document.getElementById("banners")?.replaceChildren(this.#trouble, this.#news);
  }

  setArchive(archive: Archive): void {
    this.#name.textContent = archive.name;
    this.#name.title = archive.path;
    this.#facts.textContent = [
      `version ${formatNumber(archive.version)}`,
      count(archive.num_runs, "run"),
      count(archive.num_steps, "step"),
    ].join(" · ");
    this.#news.hidden = true;
  }

  /** Marks the link of the shown page. */
  setPage(name: string): void {
    for (const [key, link] of this.#links) {
      if (key === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Sets the target of the link to the replay: the last run that was shown. */
  setLastRun(hash: string | null): void {
    this.#links.get("run")?.setAttribute("href", hash ?? formatRoute(["run"]));
  }

  /** Offers to show a version that is newer than the shown one. */
  showNews(shown: Archive, change: ArchiveChange, show: () => void): void {
    const runs = change.num_runs - shown.num_runs;
    const text = runs > 0 ? count(runs, "new run") : runs < 0 ? count(-runs, "run") + " fewer" : "no new runs";
    const button = el("button", { type: "button" }, runs > 0 ? "Show them" : "Show it");
    button.addEventListener("click", show);
    this.#news.replaceChildren(`Version ${formatNumber(change.version)}: ${text}. `, button);
    this.#news.hidden = false;
  }

  showConnection(connection: Connection): void {
    this.#trouble.hidden = connection === "online";
    this.#trouble.textContent =
      connection === "restarted"
        ? "The server restarted. Open the address that it printed in the terminal."
        : "The server does not answer. The page tries again every few seconds.";
  }
}

/** The fields for the reader's choices, and the button that lists the keys. */
export function settingFields(settings: Settings, showKeys: () => void): HTMLElement {
  const keys = el("button", { type: "button", title: "All keys (?)", "aria-label": "All keys" }, "?");
  keys.addEventListener("click", showKeys);
  return el(
    "div",
    { class: "settings" },
    choice("Theme", THEMES, (value) => value, settings, "theme"),
    choice("Tiles", PALETTES, (value) => PALETTE_NAMES[value], settings, "palette"),
    keys,
  );
}

/** A field that follows a setting. */
function choice<Key extends "theme" | "palette">(
  label: string,
  values: readonly Settings[Key][],
  name: (value: Settings[Key]) => string,
  settings: Settings,
  key: Key,
): HTMLElement {
  const select = el("select", {}, ...values.map((value) => el("option", { value }, name(value))));
  const show = (): void => void (select.value = settings[key]);
  show();
  settings.onChange(show);
  select.addEventListener("change", () => {
    const value = values.find((each) => each === select.value);
    if (value !== undefined) settings[key] = value;
  });
  return el("label", { class: "choice" }, `${label} `, select);
}
