// Builds ../../assets/{index.html,app.js,app.css,replay.html}, which the command embeds. replay.html is the replay alone in
// one file, with the marker that the command replaces by the data.
// The same sources and the same package-lock.json give the same bytes.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const folder = dirname(fileURLToPath(import.meta.url));
const output = join(folder, "..", "..", "assets");
const LIMIT = 600_000;

const shared = {
  absWorkingDir: folder,
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  write: false,
};

// Plot puts a style element into each chart, which the page's Content-Security-Policy blocks. The style sheets have
// its rules.
const withoutInlineStyles = {
  name: "plot-without-inline-styles",
  setup(builder) {
    builder.onLoad({ filter: /@observablehq\/plot\/src\/plot\.js$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const pattern = /\.call\(\(svg\) =>[^`]*svg\.append\("style"\)\.text\(\s*`[^`]*`\s*\)\s*\)/g;
      if (source.match(pattern)?.length !== 1) throw new Error(`${path}: expected one style element`);
      return { contents: source.replace(pattern, ""), loader: "js" };
    });
  },
};

const bundle = await build({
  ...shared,
  entryPoints: [join(folder, "src", "main.ts")],
  format: "iife",
  metafile: true,
  plugins: [withoutInlineStyles],
});
const styles = await build({ ...shared, entryPoints: [join(folder, "style.css")] });

/** Replaces `marker`, which must occur exactly once. `$` in the replacement has no meaning. */
function fill(text, marker, replacement) {
  const parts = text.split(marker);
  if (parts.length !== 2) throw new Error(`${marker}: expected once, found ${parts.length - 1} times`);
  return parts.join(replacement);
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

/** The replay with its script and its styles. It has no packages, so it needs no licences. */
async function replayPage() {
  const replay = await build({
    ...shared,
    entryPoints: [join(folder, "src", "replay.ts")],
    format: "iife",
    metafile: true,
  });
  const packages = Object.keys(replay.metafile.inputs).filter((path) => path.startsWith("node_modules/"));
  if (packages.length > 0) throw new Error(`replay.ts: expected no packages, found ${packages.join(", ")}`);
  // In a script element, "</script" ends the element and "<!--" starts a comment.
  const script = replay.outputFiles[0].text.trim().replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
  const sheet = (await build({ ...shared, entryPoints: [join(folder, "replay.css")] })).outputFiles[0].text.trim();
  let page = await readFile(join(folder, "replay.html"), "utf8");
  page = fill(page, "SCRIPT-HASH", hash(script));
  page = fill(page, "STYLE-HASH", hash(sheet));
  page = fill(page, "/* STYLES */", sheet);
  return fill(page, "/* SCRIPT */", script);
}

/** The names, versions and licences of the bundled packages; each licence text appears once. */
async function notices() {
  const packages = new Set();
  for (const path of Object.keys(bundle.metafile.inputs)) {
    const match = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (match) packages.add(match[1]);
  }
  if (packages.size === 0) return "";
  const byText = new Map();
  for (const name of [...packages].sort()) {
    const root = join(folder, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const file = (await readdir(root)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) throw new Error(`${name}: no licence file`);
    const text = (await readFile(join(root, file), "utf8")).trim().replaceAll("\r\n", "\n").replaceAll("*/", "* /");
    byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...byText].map(([text, names]) => `${names.join(", ")}\n\n${text}`);
  return `/*!\nThis file contains the following packages.\n\n${parts.join("\n\n====\n\n")}\n*/\n`;
}

const files = {
  "index.html": await readFile(join(folder, "index.html"), "utf8"),
  "app.js": (await notices()) + bundle.outputFiles[0].text.trim() + "\n",
  "app.css": styles.outputFiles[0].text.trim() + "\n",
  "replay.html": await replayPage(),
};

let size = 0;
await mkdir(output, { recursive: true });
for (const [name, text] of Object.entries(files)) {
  const gzipped = gzipSync(text, { level: 9 }).length;
  size += gzipped;
  await writeFile(join(output, name), text);
  console.log(`${name}: ${Buffer.byteLength(text)} bytes, ${gzipped} bytes gzipped`);
}
if (size > LIMIT) throw new Error(`${size} bytes gzipped, at most ${LIMIT} expected`);
