"""A process that records a few games, all equal, and says on standard output what it was promised.

``recorder_script.py ROOT ARCHIVE JOURNAL END``: ARCHIVE is ``-`` for a session, JOURNAL is 0 or 1. With
END ``close`` the recording is closed in the end, else the process just ends. Lines: ``F folder``, ``E id seed`` after
a game has ended, ``R n`` when the games below n are durable, ``C`` when the recording is closed, ``X text`` of an
error.

It makes the same system calls each time, as it waits for each rotation before it goes on.
"""

from __future__ import annotations

import os
import sys

import a2store
from a2store.selfplay import Recorder

GAMES = 8
"""In each of two rotations three games end, and two more after them."""
FIRST_SEED = 100
STEPS = [(0x1100_0000_0000_0000, 2), (0x2000_0000_0000_0001, 1), (0x2000_0000_0000_0011, 2)]
LAST = 0x2000_0000_0000_0002


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def begin_one(recorder: Recorder, seed: int) -> a2store.selfplay.Game:
    game = recorder.begin(seed)
    for board, move in STEPS:
        game.push(board, move)
    return game


def main() -> None:
    root, path, journal, end = sys.argv[1:]
    try:
        sink = None if path == "-" else a2store.Archive.open(path)
        recorder = Recorder(root, tag="killed", engine="any", sink=sink, journal=journal == "1")
    except (OSError, a2store.Error) as error:
        say(f"X {error}")
        return
    say(f"F {recorder.folder}")
    for number in range(GAMES):
        seed = FIRST_SEED + number
        try:
            game = begin_one(recorder, seed)
        except OSError as error:
            # That of a rotation; it is told once.
            say(f"X {error}")
            game = begin_one(recorder, seed)
        try:
            say(f"E {game.end(LAST)} {seed}")
        except OSError as error:
            say(f"X {error}")
        if number in (2, 5):
            try:
                say(f"R {recorder.rotate()}")
            except (OSError, a2store.Error) as error:
                say(f"X {error}")
    try:
        _live = recorder.begin()
    except OSError as error:
        say(f"X {error}")
    for _ in range(2 if end == "close" else 0):
        try:
            recorder.close()
        except (OSError, a2store.Error) as error:
            say(f"X {error}")
        else:
            say("C")
            break
    sys.stdout.flush()
    # What it holds is not to be written when it goes.
    os._exit(0)


if __name__ == "__main__":
    main()
