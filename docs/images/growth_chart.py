"""Draw growth.svg from the figures of a benchmark: ``python docs/images/growth_chart.py benches/results/FILE.json``.

Each line is the rate of a stage, divided by its rate for the smallest archive. A level line means that the time is
proportional to the number of steps. Ratios above 8 are drawn at 8.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

LEFT, TOP, WIDTH, HEIGHT, LABELS = 60, 20, 380, 260, 300
LOWEST, HIGHEST = 0.125, 8.0
COLORS = ("#2a78d6", "#1baf7a", "#eda100", "#e34948", "#4a3aa7", "#888888")
STYLE = (
    "text{font:13px sans-serif;fill:#444}.grid{stroke:#ccc}.line{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}.grid{stroke:#555}}"
)


def rates(figures: dict[str, dict[str, float]]) -> dict[str, dict[int, float]]:
    """Return the rate of each stage by the number of steps."""
    stages: dict[str, dict[int, float]] = {}
    for name, figure in figures.items():
        stage, _, size = name.removesuffix(" steps").rpartition(", ")
        if size.isdigit():
            stages.setdefault(stage.rpartition(", ")[0], {})[int(size)] = figure["rate_per_s"]
    return stages


def chart(stages: dict[str, dict[int, float]]) -> str:
    """Return the chart as SVG."""
    sizes = sorted(next(iter(stages.values())))
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def x(size: int) -> float:
        return LEFT + WIDTH * (math.log10(size) - first) / (last - first)

    def y(ratio: float) -> float:
        bounded = min(max(ratio, LOWEST), HIGHEST)
        return TOP + HEIGHT * math.log(HIGHEST / bounded) / math.log(HIGHEST / LOWEST)

    parts = [f"<style>{STYLE}</style>"]
    for ratio in (0.125, 0.25, 0.5, 1, 2, 4, 8):
        parts.append(f'<path class="grid" d="M{LEFT} {y(ratio):.0f}h{WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(ratio) + 4:.0f}" text-anchor="end">{ratio:g}</text>')
    for size in sizes:
        label = f"{size // 1_000_000}M steps"
        parts.append(f'<text x="{x(size):.0f}" y="{TOP + HEIGHT + 22}" text-anchor="middle">{label}</text>')
    ends = sorted(stages, key=lambda stage: -stages[stage][sizes[-1]] / stages[stage][sizes[0]])
    label_y = -math.inf
    for color, stage in zip(COLORS, ends, strict=False):
        ratios = [stages[stage][size] / stages[stage][sizes[0]] for size in sizes]
        points = " ".join(f"{x(size):.0f},{y(ratio):.1f}" for size, ratio in zip(sizes, ratios, strict=True))
        parts.append(f'<polyline class="line" stroke="{color}" points="{points}"/>')
        # Labels of lines that end close together stand below each other.
        label_y = max(label_y + 17, y(ratios[-1]) + 4)
        parts.append(f'<text x="{LEFT + WIDTH + 10}" y="{label_y:.0f}" style="fill:{color}">{stage}</text>')
    box = f'width="{LEFT + WIDTH + LABELS}" height="{TOP + HEIGHT + 40}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(parts)}</svg>\n'


def main() -> None:
    """Draw the chart."""
    figures = json.loads(Path(sys.argv[1]).read_text())["results"]["growth"]
    Path(__file__).with_name("growth.svg").write_text(chart(rates(figures)))


if __name__ == "__main__":
    main()
