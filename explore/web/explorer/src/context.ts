// The state that all pages share: the archive, the server, the settings, and listeners for their changes.

import type { Api } from "./api/client";
import type { Archive } from "./api/types";
import type { Settings } from "./settings";

/** A key with its meaning, for the dialog of all keys. */
export interface Shortcut {
  /** Values of KeyboardEvent.key that do the same. */
  keys: string[];
  /** The text for the keys in the dialog; default: the keys themselves. */
  label?: string;
  doc: string;
  /** Returns false if the key has no meaning now. */
  run(event: KeyboardEvent): boolean | void;
}

export interface Context {
  readonly api: Api;
  /** The archive at the version that the page shows. Changes when the reader asks for a newer one. */
  readonly archive: Archive;
  readonly settings: Settings;
  /** Whether the other pages exist. A replay in a file is alone. */
  readonly hasPages: boolean;
  /** Goes to an address. `replace` adds no entry to the history, and does not call the page. */
  navigate(hash: string, options?: { replace?: boolean }): void;
  /** Sets the keys of the page. They do nothing while the reader types into a field. */
  setShortcuts(shortcuts: Shortcut[]): void;
  /** Sets the second half of the window's title. */
  setTitle(title: string): void;
  /** Calls `listener` when the reader shows a newer version. Leaving the page removes all listeners here. */
  onArchive(listener: () => void): void;
  /** Calls `listener` when the theme or the palette changed, for canvases. */
  onAppearance(listener: () => void): void;
}
