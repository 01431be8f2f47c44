// Addresses of the page: everything behind `#`.

import type { Context } from "./context";

/** A parsed address, such as `#/run/12/step/340` or `#/runs?where=…`. */
export interface Route {
  /** The parts of the path, decoded: ["run", "12", "step", "340"]. */
  path: string[];
  params: URLSearchParams;
}

/** A page that is shown. */
export interface Mounted {
  /** Stops requests, timers and listeners. The element is removed afterwards. */
  leave(): void;
  /** Shows another address of the same page. Returns false if the page must be mounted anew. */
  update?(route: Route): boolean;
}

export interface Page {
  readonly title: string;
  /** Fills `root`, which is empty. Its first heading gets the focus. */
  mount(root: HTMLElement, route: Route, context: Context): Mounted;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter((part) => part !== "");
  return { path: parts.map(decode), params: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Writes an address. Parameters that are null or empty are left out. */
export function formatRoute(path: (string | number)[], params: Record<string, string | number | null> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text === "" ? "" : `?${text}`}`;
}

/** The address of the page SQL with a statement. */
export function sqlRoute(sql: string): string {
  return formatRoute(["sql"], { q: sql });
}

export function runRoute(runId: number, step?: number | null): string {
  return formatRoute(step === undefined || step === null ? ["run", runId] : ["run", runId, "step", step]);
}

export function positionRoute(board: string, mask = 0): string {
  return formatRoute(mask === 0 ? ["position", board] : ["position", board, "mask", mask]);
}
