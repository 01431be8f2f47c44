// The application: shows the page of the current address, and keeps the state that pages share.

import type { Api } from "./api/client";
import { errorText } from "./api/client";
import type { Archive, ArchiveChange } from "./api/types";
import type { Context, Shortcut } from "./context";
import { el } from "./dom";
import { listen } from "./events";
import { listenToKeys, showKeys } from "./keyboard";
import { replayPage } from "./pages/replay";
import { runsPage } from "./pages/runs";
import type { Mounted, Page, Route } from "./router";
import { parseRoute } from "./router";
import type { Settings } from "./settings";
import { Shell } from "./shell";

// Everything is in one script. The code behind a dynamic import runs when its page is shown for the first time, because
// the editor and the charts take a tenth of a second to set up.
const PAGES: Record<string, () => Page | Promise<Page>> = {
  runs: () => runsPage,
  run: () => replayPage,
  position: async () => (await import("./pages/positions")).positionsPage,
  sql: async () => (await import("./pages/sql")).sqlPage,
  overview: async () => (await import("./pages/overview")).overviewPage,
};
/** Names of pages as the navigation shows them, with their addresses. */
const OTHER_NAMES: Record<string, string> = { replay: "run", positions: "position", report: "overview" };
const START = "#/runs";
const NEWEST = "#/runs?sort=run_id&order=descending";

export class App implements Context {
  readonly api: Api;
  readonly settings: Settings;
  readonly hasPages = true;
  archive: Archive;
  readonly #shell: Shell;
  readonly #main = document.getElementById("main") as HTMLElement;
  /** Ends the listeners of the shown page. */
  #endings: (() => void)[] = [];
  #archiveListeners: (() => void)[] = [];
  #shortcuts: Shortcut[] = [];
  #hasFocused = false;
  #shown: { name: string; mounted: Mounted } | null = null;

  constructor(api: Api, settings: Settings, archive: Archive) {
    this.api = api;
    this.settings = settings;
    this.archive = archive;
    this.#shell = new Shell(settings, () => this.#showKeys());
    this.#shell.setArchive(archive);
    api.onConnection((connection) => this.#shell.showConnection(connection));
    this.#shell.showConnection(api.connection);
    listenToKeys(() => [...this.#shortcuts, ...this.#ownShortcuts()]);
    listen(api, (change) => this.#onChange(change));
    document.querySelector(".skip")?.addEventListener("click", (event) => {
      // The part behind "#" is the address of a page, so the link must not change it.
      event.preventDefault();
      this.#main.focus();
    });
    addEventListener("hashchange", () => this.#show(parseRoute(location.hash)));
    if (location.hash === "") history.replaceState(null, "", START);
    this.#show(parseRoute(location.hash));
  }

  navigate(hash: string, { replace = false } = {}): void {
    if (replace) {
      history.replaceState(null, "", hash);
      this.#remember(parseRoute(hash));
    } else if (hash === location.hash) {
      this.#show(parseRoute(hash));
    } else {
      location.hash = hash;
    }
  }

  setShortcuts(shortcuts: Shortcut[]): void {
    this.#shortcuts = shortcuts;
  }

  setTitle(title: string): void {
    document.title = `${title} – ${this.archive.name} – a2store`;
  }

  onArchive(listener: () => void): void {
    this.#archiveListeners.push(listener);
  }

  onAppearance(listener: () => void): void {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", listener);
    this.#endings.push(this.settings.onChange(listener), () => dark.removeEventListener("change", listener));
  }

  #show(route: Route): void {
    const name = route.path[0] ?? "runs";
    if (Object.hasOwn(OTHER_NAMES, name)) {
      location.replace(location.hash.replace(name, OTHER_NAMES[name] ?? name));
      return;
    }
    if (this.#shown?.name === name && this.#shown.mounted.update?.(route)) {
      this.#remember(route);
      return;
    }
    this.#leave();
    this.#shell.setPage(name);
    this.#remember(route);
    const root = el("div", { class: `page page-${name}` });
    this.#main.replaceChildren(root);
    const page = Object.hasOwn(PAGES, name) ? PAGES[name]?.() : undefined;
    if (page === undefined) {
      this.setTitle("Unknown address");
      root.append(
        el("h1", {}, "Unknown address"),
        el(
          "p",
          {},
          "This address leads to no page. Choose a page above, or see ",
          el("a", { href: START }, "all runs"),
          ".",
        ),
      );
      this.#focusHeading(root);
    } else if (page instanceof Promise) {
      // Meanwhile the reader may have gone to another page.
      void page.then((loaded) => root.isConnected && this.#mount(name, loaded, root));
    } else {
      this.#mount(name, page, root);
    }
  }

  #mount(name: string, page: Page, root: HTMLElement): void {
    this.setTitle(page.title);
    try {
      this.#shown = { name, mounted: page.mount(root, parseRoute(location.hash), this) };
    } catch (error) {
      root.append(el("p", { class: "error", role: "alert" }, `The page failed: ${errorText(error)}`));
      console.error(error);
    }
    this.#focusHeading(root);
  }

  #leave(): void {
    this.#shown?.mounted.leave();
    this.#shown = null;
    for (const end of this.#endings) end();
    this.#endings = [];
    this.#archiveListeners = [];
    this.#shortcuts = [];
  }

  /** After a change of the page, screen readers go on at its heading. The first page keeps the browser's focus. */
  #focusHeading(root: HTMLElement): void {
    scrollTo(0, 0);
    if (!this.#hasFocused) {
      this.#hasFocused = true;
      return;
    }
    const heading = root.querySelector("h1");
    heading?.setAttribute("tabindex", "-1");
    heading?.focus({ preventScroll: true });
  }

  #remember(route: Route): void {
    if (route.path[0] === "run" && route.path[1] !== undefined) this.#shell.setLastRun(location.hash);
  }

  #onChange(change: ArchiveChange): void {
    if (change.version === this.archive.version) return;
    this.#shell.showNews(this.archive, change, () => void this.#refresh());
  }

  async #refresh(): Promise<void> {
    try {
      this.archive = await this.api.archive();
    } catch {
      return;
    }
    this.#shell.setArchive(this.archive);
    // The button that had the focus is gone.
    this.#main.focus({ preventScroll: true });
    this.#archiveListeners.forEach((listener) => listener());
    // A run does not change, so its page has nothing new to show.
    if (this.#shown?.name === "run") this.navigate(NEWEST);
  }

  #ownShortcuts(): Shortcut[] {
    return [{ keys: ["?"], doc: "Show all keys", run: () => this.#showKeys() }];
  }

  #showKeys(): void {
    showKeys([
      ["This page", this.#shortcuts],
      ["Everywhere", this.#ownShortcuts()],
    ]);
  }
}
