// The replay of one run in a file: the explorer's replay without a server. The data is in the page.

import { Api } from "./api/client";
import type { Annotation, Archive, Board, FourValues, PolicyValues, Run } from "./api/types";
import type { Context, Shortcut } from "./context";
import { el } from "./dom";
import { NO_ENGINE } from "./format";
import { showIcon } from "./icon";
import { listenToKeys, showKeys } from "./keyboard";
import { Game } from "./pages/replay/game";
import { ReplayView } from "./pages/replay/view";
import { formatRoute, parseRoute } from "./router";
import { Settings } from "./settings";
import { settingFields } from "./shell";

/** The data that the command puts into the page. */
interface Data extends Pick<Archive, "min_loss" | "max_gap" | "palettes"> {
  run: Run;
  /** The index of the first position to show. */
  at: number;
  annotations: Annotation[];
  /** The values of a policy for each position. */
  policy: { name: string; values: (FourValues | null)[] } | null;
}

/** Answers from the data of the page. */
class FileApi extends Api {
  readonly #data: Data;

  constructor(data: Data) {
    super();
    this.#data = data;
  }

  override async annotations(_: number, from: number, to: number): Promise<Annotation[]> {
    return this.#data.annotations.filter(({ step }) => step >= from && step < to);
  }

  override async policy(boards: Board[]): Promise<PolicyValues> {
    const { policy, run } = this.#data;
    const key = ({ board, mask }: Board): string => `${board} ${mask}`;
    const { board, mask } = run.positions;
    const values = new Map(
      board.map((digits, at) => [key({ board: digits, mask: mask[at] ?? 0 }), policy?.values[at]]),
    );
    return { name: policy?.name ?? "", values: boards.map((each) => values.get(key(each)) ?? null) };
  }
}

const data = JSON.parse(document.getElementById("data")?.textContent ?? "") as Data;
const { run, min_loss, max_gap, palettes } = data;
const settings = new Settings();
const appearance = matchMedia("(prefers-color-scheme: dark)");
let shortcuts: Shortcut[] = [];
const everywhere: Shortcut[] = [{ keys: ["?"], doc: "Show all keys", run: () => showAllKeys() }];

function showAllKeys(): void {
  showKeys([["This page", [...shortcuts, ...everywhere]]]);
}

const context: Context = {
  api: new FileApi(data),
  settings,
  hasPages: false,
  archive: {
    name: "",
    path: "",
    version: 0,
    num_runs: 0,
    num_steps: 0,
    phases: {},
    engines: [],
    models: [],
    policy: data.policy?.name ?? null,
    program: "",
    max_rows: 0,
    min_loss,
    max_gap,
    palettes,
  },
  navigate: (hash) => {
    // The frame of a notebook has no address to change.
    if (location.protocol !== "about:") history.replaceState(null, "", hash);
  },
  setShortcuts: (keys) => {
    shortcuts = keys;
  },
  setTitle: () => {},
  onArchive: () => {},
  onAppearance: (listener) => {
    settings.onChange(listener);
    appearance.addEventListener("change", listener);
  },
};

showIcon();
settings.setPalettes(palettes);
document.title = `${run.run_id === null ? "Replay" : `Run ${run.run_id}`} – ${run.engine ?? NO_ENGINE} – a2store`;
document.getElementById("header")?.replaceChildren(settingFields(settings, showAllKeys));
listenToKeys(() => [...shortcuts, ...everywhere]);
const game = new Game(run);
const view = new ReplayView(game, context);
document.getElementById("main")?.replaceChildren(el("div", { class: "page page-run" }, view.element));
const first = formatRoute(["run", game.id, "step", game.stepIndex(data.at)]);
view.follow(parseRoute(location.hash === "" ? first : location.hash));
addEventListener("hashchange", () => view.follow(parseRoute(location.hash)));
