// Live events from the server.

import type { Api } from "./api/client";
import type { ArchiveChange } from "./api/types";

const RETRY = 2000;

/**
 * Listens to the server while the page is visible: browsers allow six connections per host, for all tabs together.
 * On each new connection, the server sends the archive's version, so that the page misses no commit.
 */
export function listen(api: Api, onArchive: (change: ArchiveChange) => void): void {
  let source: EventSource | null = null;

  function open(): void {
    if (source !== null || document.visibilityState === "hidden") return;
    const opened = new EventSource("/api/events");
    source = opened;
    opened.addEventListener("open", () => api.setConnection("online"));
    opened.addEventListener("archive", (event) => onArchive(JSON.parse(event.data) as ArchiveChange));
    opened.addEventListener("error", () => void ask(opened));
  }

  function close(): void {
    source?.close();
    source = null;
  }

  /**
   * Finds out why the connection is lost. EventSource tries again by itself, but not after an error status. The request
   * shows whether the server has restarted, because a restarted server needs a new token.
   */
  async function ask(lost: EventSource): Promise<void> {
    await api.archive().catch(() => null);
    if (source !== lost || lost.readyState !== EventSource.CLOSED) return;
    close();
    if (api.connection !== "restarted") setTimeout(open, RETRY);
  }

  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") close();
    else open();
  });
  open();
}
