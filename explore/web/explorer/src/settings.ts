// The reader's choices, which the browser stores.

import type { Archive, PaletteName } from "./api/types";

export const THEMES = ["auto", "light", "dark"] as const;
export const PALETTES = ["classic", "safe"] as const;

export type Theme = (typeof THEMES)[number];

export class Settings {
  readonly #listeners = new Set<() => void>();
  #palettes: Archive["palettes"] | null = null;
  #theme: Theme = THEMES.find((theme) => theme === this.get("theme")) ?? "auto";
  #palette: PaletteName = PALETTES.find((palette) => palette === this.get("palette")) ?? "classic";

  get theme(): Theme {
    return this.#theme;
  }

  set theme(theme: Theme) {
    this.#theme = theme;
    this.set("theme", theme);
    this.#apply();
  }

  get palette(): PaletteName {
    return this.#palette;
  }

  set palette(palette: PaletteName) {
    this.#palette = palette;
    this.set("palette", palette);
    this.#apply();
  }

  /** Reads a stored text; null if it is missing, or if the browser stores nothing. */
  get(key: string): string | null {
    try {
      return localStorage.getItem(`a2store-${key}`);
    } catch {
      return null;
    }
  }

  set(key: string, value: string): void {
    try {
      localStorage.setItem(`a2store-${key}`, value);
    } catch {
      // The choice then holds for this page only.
    }
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  setPalettes(palettes: Archive["palettes"]): void {
    this.#palettes = palettes;
    this.#apply();
  }

  applyTheme(): void {
    document.documentElement.style.colorScheme = this.#theme === "auto" ? "light dark" : this.#theme;
  }

  /** Tiles take their colours from custom properties, so a change needs no new elements. */
  #apply(): void {
    this.applyTheme();
    const { style } = document.documentElement;
    this.#palettes?.[this.#palette].forEach(([background, text], exponent) => {
      style.setProperty(`--tile-${exponent}`, background);
      style.setProperty(`--tile-text-${exponent}`, text);
    });
    for (const listener of this.#listeners) listener();
  }
}
