"""A process that records a few equal games, and reports its progress on standard output.

``recorder_script.py ROOT ARCHIVE END``: ARCHIVE is ``-`` for sessions in ROOT. With END ``close`` the recording is
closed at the end, otherwise the process just exits. Output lines: ``E id seed`` after a game has ended, ``R n`` when
the games below n are durable, ``C`` when the recording is closed, ``X text`` for an error.

It waits for each rotation before it continues, so it makes the same system calls each time.
"""

from __future__ import annotations

import os
import sys

import a2store

# a2store.selfplay would import NumPy, which takes longer than the recording.
from a2store._a2store import Game, Recorder

GAMES = 8
"""Three games end in each of two rotations, and two more after them."""
FIRST_SEED = 100
STEPS = [(0x1100_0000_0000_0000, 2), (0x2000_0000_0000_0001, 1), (0x2000_0000_0000_0011, 2)]
LAST = 0x2000_0000_0000_0002


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def begin_one(recorder: Recorder, seed: int) -> Game:
    game = recorder.begin(seed)
    for board, move in STEPS:
        game.push(board, move)
    return game


def main() -> None:
    root, path, end = sys.argv[1:]
    try:
        recorder = Recorder(root if path == "-" else a2store.Archive.open(path), tag="killed", engine="any")
    except (OSError, a2store.Error) as error:
        say(f"X {error}")
        return
    for number in range(GAMES):
        seed = FIRST_SEED + number
        say(f"E {begin_one(recorder, seed).end(LAST)} {seed}")
        if number in (2, 5):
            try:
                say(f"R {recorder.rotate()}")
            except (OSError, a2store.Error) as error:
                say(f"X {error}")
    _live = recorder.begin()
    for _ in range(2 if end == "close" else 0):
        try:
            recorder.close()
        except (OSError, a2store.Error) as error:
            say(f"X {error}")
        else:
            say("C")
            break
    sys.stdout.flush()
    # Exits without writing the recorder's buffered games.
    os._exit(0)


if __name__ == "__main__":
    main()
