"""A process that records until it is killed, and prints the guarantees that it received.

``recorder_child.py ROOT SEED``. Lines: ``R n`` when the games below n are durable.

A game's seed determines all its boards, so a reader of the sessions knows the expected content.
"""

from __future__ import annotations

import os
import random
import sys
import threading

import numpy as np
import numpy.typing as npt

from a2store.selfplay import Recorder

THREADS = 3
ROTATE_STEPS = 4_000


def boards(seed: int) -> npt.NDArray[np.uint64]:
    """Return random boards. They violate the rules, but a session accepts any board."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 1 << 64, int(rng.integers(1, 900)), dtype=np.uint64)


def moves(seed: int, count: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed + 1).integers(0, 4, count, dtype=np.uint8)


def say(line: str) -> None:
    # A single unbuffered call keeps lines of several threads whole, and loses no line if the process is killed.
    os.write(1, f"{line}\n".encode())


def main() -> None:
    root, seed = sys.argv[1], int(sys.argv[2])
    recorder = Recorder(root, tag=f"killed-{seed}", rotate_steps=ROTATE_STEPS)

    def play(thread: int) -> None:
        for number in range(1_000_000):
            own = (seed << 32) + (thread << 24) + number
            game = recorder.begin(own)
            values = boards(own)
            chosen = moves(own, len(values))
            for start in range(0, len(values), 100):
                game.push_batch(values[start : start + 100], chosen[start : start + 100])
            if number % 7 == 6:
                game.abandon()
            else:
                game.end(values[0])

    for thread in range(THREADS):
        threading.Thread(target=play, args=(thread,), daemon=True).start()
    rng = random.Random(seed)
    while True:
        threading.Event().wait(rng.uniform(0, 0.05))
        say(f"R {recorder.rotate()}")


if __name__ == "__main__":
    main()
