// The choice between a light and a dark page. The default follows the system.

import { el } from "./dom";

const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];
const KEY = "a2store-theme";

/** A button that switches the theme and remembers it, where the browser allows files to store data. */
export function themeButton(): HTMLButtonElement {
  let theme = stored();
  const button = el("button", { type: "button", class: "theme" });
  const apply = (): void => {
    document.documentElement.style.colorScheme = theme === "system" ? "light dark" : theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // The choice then holds for this page only.
    }
    apply();
  });
  apply();
  return button;
}

function stored(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? "system";
  } catch {
    return "system";
  }
}
