import { readReport } from "./data";
import { el } from "./dom";
import { pageOf } from "./page";
import { agreement } from "./sections/agreement";
import { annotations } from "./sections/annotations";
import { contents } from "./sections/contents";
import { lengths } from "./sections/lengths";
import { moves } from "./sections/moves";
import { positions } from "./sections/positions";
import { presence } from "./sections/presence";
import { reach } from "./sections/reach";
import { scores } from "./sections/scores";
import { spawns } from "./sections/spawns";
import { survival } from "./sections/survival";
import { values } from "./sections/values";

const sections = [
  contents,
  scores,
  lengths,
  reach,
  survival,
  presence,
  values,
  moves,
  agreement,
  positions,
  spawns,
  annotations,
];

const report = readReport();
document
  .getElementById("page")
  ?.replaceChildren(
    ...(report === null
      ? [el("p", {}, "This page has no data. `a2store report` fills it in.")]
      : pageOf(report, sections)),
  );
// In a frame of the explorer, links to runs lead the whole window there.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  const href = link?.getAttribute("href") ?? "";
  if (href !== "" && !href.startsWith("#")) link?.setAttribute("target", "_top");
});
if (location.hash !== "") document.getElementById(location.hash.slice(1))?.scrollIntoView();
