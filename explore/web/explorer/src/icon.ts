// The icon of the browser's tab: four tiles.

const TILES = [
  ["#edc22e", 2, 2],
  ["#f65e3b", 8.5, 2],
  ["#f2b179", 2, 8.5],
  ["#eee4da", 8.5, 8.5],
] as const;

export function showIcon(): void {
  const tiles = TILES.map(([fill, x, y]) => `<rect x="${x}" y="${y}" width="5.5" height="5.5" rx="1" fill="${fill}"/>`);
  const icon =
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">` +
    `<rect width="16" height="16" rx="3" fill="#a59a8e"/>${tiles.join("")}</svg>`;
  const link = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (link !== null) link.href = `data:image/svg+xml,${encodeURIComponent(icon)}`;
}
