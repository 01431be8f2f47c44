"""Every part of the benchmarks on small data: their answers are checked, and their times are not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SIDE_BY_SIDE = Path(__file__).parents[2] / "benches" / "side_by_side"


def parts() -> list[str]:
    """Return the parts that the benchmark itself lists."""
    for node in ast.parse((SIDE_BY_SIDE / "__main__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PARTS":
            return list(ast.literal_eval(node.value))
    raise AssertionError("the benchmark lists no parts")


@pytest.mark.parametrize("part", parts())
def test_a_part_on_small_data(part: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SIDE_BY_SIDE, part, "--small", "--json", tmp_path / "figures.json"],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (tmp_path / "figures.json").stat().st_size > 100
