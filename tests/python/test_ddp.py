"""Training in two processes with DistributedDataParallel: one table, or shares of a query; equal steps, each row once,
decreasing loss.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import a2store
from a2store.torch import StepLoader

SCRIPT = Path(__file__).with_name("ddp_train.py")
RANKS = 2
# The test takes about 20 seconds on two slow cores, so this only ends a test that hangs.
PATIENCE = 600


def run_ranks(folder: Path) -> None:
    """Start the ranks, wait for them, and kill those that remain."""
    # The store chooses a free port and keeps it.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        # The machine's name may not resolve to a usable interface.
        "GLOO_SOCKET_IFNAME": "lo",
    }
    logs = [folder / f"rank-{rank}.log" for rank in range(RANKS)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            command = [sys.executable, str(SCRIPT), str(folder)]
            with log.open("wb") as out:
                env = {**environment, "RANK": str(rank)}
                processes.append(subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT))
        end = time.monotonic() + PATIENCE
        # If one rank fails, the others would wait for it forever.
        while (codes := [process.poll() for process in processes]) != [0] * RANKS:
            assert not any(codes), "\n".join(log.read_text() for log in logs)
            assert time.monotonic() < end, "\n".join(log.read_text() for log in logs)
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of each rank, by source."""
    if not dist.is_gloo_available():
        pytest.skip("PyTorch without gloo")
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(folder)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("source", ["table", "query"])
def test_two_ranks_train_one_policy(ranks: list[dict[str, Any]], source: str) -> None:
    first, second = (results[source] for results in ranks)

    # Both ranks use one table in shared memory, which the first rank created.
    assert first["fingerprint"] == second["fingerprint"]
    assert first["shared"]
    assert second["shared"]

    # Both ranks take the same number of steps, and each row of an epoch is served on one rank.
    assert first["steps"] == second["steps"]
    assert len(set(first["steps"])) == 1
    assert all(first["complete"])
    assert all(second["complete"])
    for ours, theirs in zip(first["rows"], second["rows"], strict=True):
        assert ours + theirs == first["train"]
        assert abs(ours - theirs) <= 1

    # Both ranks have the same model.
    assert first["parameters"] == second["parameters"]
    assert first["losses"][-1] == second["losses"][-1]

    # Before training, the cross entropy is 1.26 nats, like a random legal move. After five epochs it is 0.78 on unseen
    # games, and the error of the values is 0.12 instead of 2.3.
    assert first["held_out"] > 5000
    assert first["uniform"] > 1.2
    assert first["losses"][0][0] > 1.15
    entropy, error = first["losses"][-1]
    assert entropy < 0.9
    assert error < 0.25


@pytest.mark.skipif(not dist.is_gloo_available(), reason="PyTorch without gloo")
def test_the_recipe_for_torchrun(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=30, depth=0, seed=3, progress=False)
    a2store.Archive.create(tmp_path / "games.a2").ingest(tmp_path / "runs", progress=False)
    text = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text().split("### Recipes")[1]
    common, torchrun, *_ = re.findall("```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "train.py").write_text(f"{common}\n{torchrun}")
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
