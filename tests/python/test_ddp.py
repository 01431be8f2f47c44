"""Training in two processes with DistributedDataParallel, as the documentation shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import a2store
from a2store.torch import StepLoader

# The test takes about 20 seconds on two slow cores, so this only ends a test that hangs.
PATIENCE = 600


@pytest.mark.skipif(not dist.is_gloo_available(), reason="PyTorch without gloo")
def test_the_recipe_for_torchrun(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=30, depth=0, seed=3, progress=False)
    a2store.Archive.create(tmp_path / "games.a2").ingest(tmp_path / "runs", progress=False)
    text = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text().split("### Recipes")[1]
    common, torchrun, *_ = re.findall("```python\n(.*?)```", text, re.DOTALL)
    # On a busy machine, threads of gloo abort some processes at their end, also without a2store
    # (pytorch/pytorch#179291).
    (tmp_path / "train.py").write_text(f"{common}\n{torchrun}\nos._exit(0)\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    states = [torch.load(tmp_path / f"epoch-{epoch}.pt")["loader"] for epoch in range(3)]
    assert [(state["epoch"], state["world_size"]) for state in states] == [(0, 2), (1, 2), (2, 2)]
    # The state of an ended epoch fits one rank too.
    query = a2store.open(tmp_path / "games.a2", version=2).sql("SELECT * FROM steps WHERE move IS NOT NULL")
    loader = StepLoader(query, 4096, seed=1, shard=(0, 1))
    loader.load_state_dict(states[-1])
    assert (loader.epoch, sum(len(batch["move"]) for batch in loader)) == (3, states[-1]["total_rows"])
