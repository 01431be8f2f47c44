"""Every part of the benchmarks on small data: their answers are checked, and their times are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SIDE_BY_SIDE = Path(__file__).parents[2] / "benches" / "side_by_side"


def test_all_parts_on_small_data(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SIDE_BY_SIDE, "--small", "--json", tmp_path / "figures.json"],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # Each part adds its figures.
    assert len(json.loads((tmp_path / "figures.json").read_text())["results"]) >= 10
