"""A folder of files of every format, and of files with unknown content."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import formats
import logs
import oracle
import packs
import sources
from games import play
from oracle import Game
from sources import Expected, Name

ENGINES = (None, "plain-d2", "γάμμα")


@dataclass
class Tree:
    """A folder of files of every kind."""

    root: Path
    sources: dict[Path, Name] = field(default_factory=dict)
    others: list[Path] = field(default_factory=list)

    def expected(self) -> list[Expected]:
        """Return the runs in the order of paths, and within a file in the order of the file."""
        ordered = sorted(self.sources, key=lambda path: [os.fsencode(part) for part in path.parts])
        return [run for path in ordered for run in sources.read(path, self.sources[path])]


class Games:
    """A supply of games, all different."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.given = 0

    def take(self, count: int, *, raw: bool = False, steps: int = 60, whole: bool = False) -> list[Game]:
        games = []
        for _ in range(count):
            length = 10_000 if whole else self.rng.randrange(8, steps)
            without = (0.0, 0.15)[self.given % 2]
            games.append(play(self.rng, length, engine=ENGINES[self.given % 3], raw=raw, without_evs=without))
            self.given += 1
        return games

    def cheat(self) -> Game:
        """Return a game that breaks the rules."""
        (game,) = self.take(1)
        return replace(game, boards=(game.boards[0] ^ 0xF, *game.boards[1:]))


def write_tree(root: Path, seed: int) -> Tree:
    tree, games = Tree(root), Games(seed)
    write_run_files(tree, games)
    write_packs(tree, games)
    write_datasets(tree, games)
    write_sessions(tree, games)
    write_logs(tree, games)
    write_others(tree)
    return tree


def write_run_files(tree: Tree, games: Games) -> None:
    folder = tree.root / "runs" / "20260101"
    folder.mkdir(parents=True)
    # The names do not match the contents.
    names = ["a.a2run2", "b.bin", "c.dat", "d", "e.a2t1", "Z.a2run2", "f.npy", "g.jsonl"]
    for number, (name, game) in enumerate(zip(names, [games.cheat(), *games.take(len(names) - 1)], strict=True)):
        encode = (oracle.encode_a2run2, oracle.encode_a2t1)[number % 2]
        (folder / name).write_bytes(encode(game))
        tree.sources[folder / name] = "run"


def write_packs(tree: Tree, games: Games) -> None:
    folder = tree.root / "packs"
    folder.mkdir()
    stored = {"plain.a2pack": formats.NONE, "x": formats.NONE, "z.dat": formats.ZSTD, "l": formats.LZ4}
    for name, compression in stored.items():
        if formats.has_codec(compression):
            played = games.take(5)
            payloads = packs.payloads_of(played, compression)
            formats.write_pack(folder / name, payloads, align=8, stats=packs.nearest([len(game) for game in played]))
            tree.sources[folder / name] = "pack"


def write_datasets(tree: Tree, games: Games) -> None:
    for name in ("pack.dat", "games", "no-values"):
        formats.write_pack_dat(tree.root / name, games.take(4), evs=name != "no-values")
        tree.sources[tree.root / name] = "packdat"
    options: dict[str, dict[str, Any]] = {
        "single": {"manifest": True},
        "sharded": {"shards": 3},
        "appended": {"appended": 2},
        "appended-shards": {"appended": 3, "shards": 2, "manifest": True},
    }
    for name, chosen in options.items():
        path = tree.root / "datasets" / name
        formats.write_dataset(path, [*games.take(4), games.cheat()], **chosen)
        tree.sources[path] = "npy"


def write_sessions(tree: Tree, games: Games) -> None:
    options: dict[str, dict[str, Any]] = {
        "boards": {"embedding": 4},
        "moves": {"action": True, "first_id": 7},
        "shards": {"shards": 3},
        "sampled": {"sample_rate": 3},
        "sampled-moves": {"sample_rate": 4, "action": True, "shards": 2},
    }
    for number, (name, chosen) in enumerate(options.items()):
        path = tree.root / "selfplay" / f"2026010{number}_model={name}"
        formats.write_session(path, [*games.take(3), games.cheat()], **chosen)
        tree.sources[path] = "session"


def write_logs(tree: Tree, games: Games) -> None:
    folder = tree.root / "macroxue" / "d6"
    # Whole games end on a full board, so their final boards are known.
    played = [*games.take(4, raw=True), *games.take(2, raw=True, whole=True)]
    for number, game in enumerate(played):
        chosen: dict[str, Any] = {"zipped": number % 2 == 0, "zipped_meta": number % 3 == 1, "extra": number == 2}
        path = logs.write_macroxue(folder, f"game{number:03}", game, 9000 + number, **chosen)
        tree.sources[path] = "macroxue"


def write_others(tree: Tree) -> None:
    folder = tree.root / "notes"
    folder.mkdir()
    (folder / "README.md").write_text("# Games\n")
    (folder / "facts.json").write_text(json.dumps({"seed": 7, "runs": [1, 2]}))
    (folder / "lines.jsonl").write_text('{"run_idx": 0, "moves": ["UP"]}\n')
    (folder / "empty").write_bytes(b"")
    (folder / "noise").write_bytes(random.Random(1).randbytes(5000))
    np.save(folder / "weights.npy", np.ones((3, 4), "f4"))
    np.save(folder / "rows.npy", np.zeros(5, [("board", "<u8"), ("label", "<f4")]))
    formats.execute(folder / "other.db", "CREATE TABLE runs(name TEXT)")
    (folder / ".hidden.a2run2").write_bytes(b"A2T1")
    (folder / "half.a2run2.tmp").write_bytes(b"A2T1")
    tree.others += folder.iterdir()
