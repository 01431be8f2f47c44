// Builds ../../assets/report.html: the page with its styles, its script and the marker that the command replaces by the data.
// The same sources and the same package-lock.json give the same bytes.
import { build, transform } from "esbuild";
import { createHash } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const folder = dirname(fileURLToPath(import.meta.url));
const output = join(folder, "..", "..", "assets", "report.html");
const MARKER = '<script type="application/json" id="data">{}</script>';
const LIMIT = 400_000;

/** Replaces `marker`, which must occur exactly once. `$` in the replacement has no meaning. */
function fill(text, marker, replacement) {
  const parts = text.split(marker);
  if (parts.length !== 2) throw new Error(`${marker}: expected once, found ${parts.length - 1} times`);
  return parts.join(replacement);
}

const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

// Plot puts a style element into each chart, which the page's Content-Security-Policy blocks. style.css has its rules.
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
  entryPoints: [join(folder, "src", "main.ts")],
  absWorkingDir: folder,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  write: false,
  plugins: [withoutInlineStyles],
});
// In a script element, "</script" ends the element and "<!--" starts a comment.
const script = bundle.outputFiles[0].text.trim().replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const styles = (
  await transform(await readFile(join(folder, "style.css"), "utf8"), {
    loader: "css",
    minify: true,
    target: "es2022",
    charset: "utf8",
  })
).code.trim();

/** The names, versions and licences of the bundled packages; each licence text appears once. */
async function notices() {
  const packages = new Set();
  for (const path of Object.keys(bundle.metafile.inputs)) {
    const match = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (match) packages.add(match[1]);
  }
  const byText = new Map();
  for (const name of [...packages].sort()) {
    const root = join(folder, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const file = (await readdir(root)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) throw new Error(`${name}: no licence file`);
    const text = (await readFile(join(root, file), "utf8")).trim().replaceAll("\r\n", "\n").replaceAll("--", "- -");
    byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...byText].map(([text, names]) => `${names.join(", ")}\n\n${text}`);
  return `This file contains the following packages.\n\n${parts.join("\n\n====\n\n")}`;
}

let page = await readFile(join(folder, "template.html"), "utf8");
page = fill(page, "NOTICES", await notices());
page = fill(page, "SCRIPT-HASH", hash(script));
page = fill(page, "STYLE-HASH", hash(styles));
page = fill(page, "/* STYLES */", styles);
page = fill(page, "/* SCRIPT */", script);
if (page.split(MARKER).length !== 2) throw new Error(`expected one ${MARKER}`);
const size = gzipSync(page, { level: 9 }).length;
if (size > LIMIT) throw new Error(`${size} bytes gzipped, at most ${LIMIT} expected`);
await writeFile(output, page);
console.log(`report.html: ${Buffer.byteLength(page)} bytes, ${size} bytes gzipped`);
