"""Compare the figures of two runs of the benchmarks: ``python benches/compare_results.py BEFORE.json AFTER.json``.

``python benches/side_by_side --json FILE`` writes such files. Ratios to a peer of the same run are comparable between
machines, and times are not.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Return each figure that both runs have: its name, and both values."""
    for part, names in before.items():
        for name, figures in names.items():
            for figure, value in figures.items():
                other = after.get(part, {}).get(name, {}).get(figure)
                if name != "meanwhile" and value and other:
                    yield f"{part}: {name}: {figure}", value, other


def main() -> None:
    """Print the environments that differ, and the figures that changed."""
    parser = argparse.ArgumentParser(description="Compare the figures of two runs of the benchmarks.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--at-least", type=float, default=5, metavar="PERCENT", help="hide smaller changes (5)")
    options = parser.parse_args()
    before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    for name in before["environment"].keys() | after["environment"].keys():
        found = [each["environment"].get(name, "none") for each in (before, after)]
        if found[0] != found[1]:
            print(f"{name}: {found[0]} -> {found[1]}")
    num_figures = 0
    for name, old, new in changes(before["results"], after["results"]):
        num_figures += 1
        if abs(new / old - 1) * 100 >= options.at_least:
            print(f"{new / old - 1:+7.0%}  {name}: {old:.4g} -> {new:.4g}")
    print(f"{num_figures} figures in both files; changes below {options.at_least:g} % are hidden")


if __name__ == "__main__":
    main()
