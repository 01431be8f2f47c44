import { Api, errorText } from "./api/client";
import { App } from "./app";
import { el } from "./dom";
import { showIcon } from "./icon";
import { Settings } from "./settings";

const api = new Api();
const settings = new Settings();
settings.applyTheme();
showIcon();

/** Starts the page, and tries again until the server answers. */
async function start(): Promise<void> {
  try {
    const archive = await api.archive();
    settings.setPalettes(archive.palettes);
    new App(api, settings, archive);
  } catch (error) {
    document.getElementById("main")?.replaceChildren(el("p", { class: "error", role: "alert" }, errorText(error)));
    if (api.connection === "offline") setTimeout(() => void start(), 2000);
  }
}

void start();
