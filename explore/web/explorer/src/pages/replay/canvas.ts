// Drawing on canvases.

/** The colour of a custom property as a canvas understands it. */
export function colorOf(element: HTMLElement, property: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${property})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Gives a canvas the resolution of the screen, and clears it. Returns null if it is hidden. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const scale = devicePixelRatio;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (context === null || width <= 0) return null;
  context.scale(scale, scale);
  return context;
}

export interface Line {
  values: Float64Array;
  low: number;
  high: number;
  color: string;
}

/**
 * Draws a line through the values. Each column of pixels shows the least and the greatest of its values, so that no
 * peak is lost among thousands of positions.
 */
export function drawLine(
  context: CanvasRenderingContext2D,
  line: Line,
  left: number,
  width: number,
  top: number,
  height: number,
): void {
  const { values, low, high } = line;
  const last = Math.max(values.length - 1, 1);
  const span = high > low ? high - low : 1;
  const y = (value: number): number => top + height - ((value - low) / span) * height;
  context.strokeStyle = line.color;
  context.lineWidth = 1.25;
  context.lineJoin = "round";
  context.beginPath();
  let pen = false;
  const perPixel = last / Math.max(width, 1);
  const stride = Math.max(perPixel, 1);
  for (let start = 0; start < values.length; start += stride) {
    const [from, to] = [
      Math.floor(start),
      Math.min(Math.max(Math.floor(start + stride), Math.floor(start) + 1), values.length),
    ];
    let [min, max] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (let at = from; at < to; at += 1) {
      const value = values[at] ?? Number.NaN;
      if (value < min) min = value;
      if (value > max) max = value;
    }
    if (min > max) {
      pen = false;
      continue;
    }
    const x = left + (from / last) * width;
    if (pen) context.lineTo(x, y(min));
    else context.moveTo(x, y(min));
    if (max > min) context.lineTo(x, y(max));
    pen = true;
  }
  context.stroke();
}
