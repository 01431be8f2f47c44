"""Training in two processes with DistributedDataParallel: one table, equal steps, each row once, decreasing loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist

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


@pytest.mark.skipif(not dist.is_gloo_available(), reason="PyTorch without gloo")
def test_two_ranks_train_one_policy(tmp_path: Path) -> None:
    run_ranks(tmp_path)
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(RANKS))

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
