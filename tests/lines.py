"""Print the number of lines of the project, with its budgets: ``python3 tests/lines.py [MODULE]``.

Rust lines include comments and exclude tests: modules under ``#[cfg(test)]``, files named ``tests.rs`` and files in
folders named ``tests``. With the name of a module, such as ``query`` or ``query/scan``, its files are listed too.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("src/", "cli/", "explore/", "python/src/")
BUDGETS = {"core": 40_775, "cli, explore, python": 11_510, "Python tests": 40_030}


def tracked(suffix: str) -> list[str]:
    """Return the tracked files with this suffix, relative to the root."""
    listed = subprocess.run(["git", "ls-files", f"*{suffix}"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]


def without_tests(lines: list[str]) -> list[str]:
    """Return the lines of a Rust file without the items under ``#[cfg(test)]``."""
    kept: list[str] = []
    rest = iter(lines)
    for line in rest:
        if line.strip() != "#[cfg(test)]":
            kept.append(line)
            continue
        item = next(rest)
        while item.strip().startswith("#"):
            item = next(rest)
        if item.rstrip().endswith("{"):
            # rustfmt puts the closing brace at the item's own indentation.
            end = item[: len(item) - len(item.lstrip())] + "}"
            while not next(rest).startswith(end):
                pass
    return kept


def read(path: str) -> list[str]:
    """Return the lines of a file."""
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def is_test(path: str) -> bool:
    """Return whether a Rust file holds only tests."""
    parts = path.split("/")
    return "tests" in parts or parts[-1] == "tests.rs"


def module(path: str) -> str:
    """Return the package of a Rust file, or its top module in the core: ``query`` for ``src/query/mod.rs``."""
    package, _, rest = path.partition("/")
    return rest.split("/")[0].removesuffix(".rs") if package == "src" else package


def section(path: str) -> str:
    """Return the part of the project that a Python file belongs to."""
    if path.startswith("tests/python/"):
        return "Python tests"
    return "Python package" if path.startswith("python/") else "Python examples, benchmarks and scripts"


def main() -> None:
    """Print the lines."""
    rust = {path: read(path) for path in tracked(".rs")}
    sources = {path: len(without_tests(lines)) for path, lines in rust.items() if path.startswith(PACKAGES)}
    sources = {path: number for path, number in sources.items() if not is_test(path)}

    modules: Counter[str] = Counter()
    for path, number in sources.items():
        modules[module(path)] += number
    for name, number in modules.most_common():
        print(f"{number:8,}  {name}")

    core = sum(number for path, number in sources.items() if path.startswith("src/"))
    totals: Counter[str] = Counter({"core": core, "cli, explore, python": sum(sources.values()) - core})
    totals["Rust tests and benchmarks"] = sum(map(len, rust.values())) - sum(sources.values())
    for path in tracked(".py"):
        totals[section(path)] += len(read(path))
    print()
    for name, number in totals.items():
        print(f"{number:8,}  {name}" + (f", at most {BUDGETS[name]:,}" if name in BUDGETS else ""))
    over = [name for name, most in BUDGETS.items() if totals[name] > most]

    if len(sys.argv) > 1:
        print()
        for path, number in sorted(sources.items()):
            if path.removeprefix("src/").startswith(sys.argv[1].removeprefix("src/")):
                print(f"{number:8,}  {path}")
    if over:
        sys.exit(f"more lines than the budget: {', '.join(over)}")


if __name__ == "__main__":
    main()
