// Events about commits. The connection is open only while the page is visible, because browsers allow six per host.

import type { ArchiveChange } from "../../api/types";

/** Calls `onVersion` with the archive's version, the first time at once. Returns the function that stops it. */
export function followVersions(onVersion: (version: number) => void): () => void {
  let source: EventSource | null = null;
  const update = (): void => {
    if (document.visibilityState === "hidden") {
      source?.close();
      source = null;
    } else if (source === null || source.readyState === EventSource.CLOSED) {
      source = new EventSource("/api/events");
      source.addEventListener("archive", (event) => onVersion((JSON.parse(event.data) as ArchiveChange).version));
    }
  };
  document.addEventListener("visibilitychange", update);
  update();
  return () => {
    document.removeEventListener("visibilitychange", update);
    source?.close();
  };
}
