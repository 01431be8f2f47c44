"""Runs of any format loaded directly into a table: the same rows as through an archive, filtered and numbered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import formats
import oracle
import packs
from compare import assert_same, row_keys
from oracle import Array
from sources import Expected, mask
from trees import Games, Tree, write_tree

NAMES = ("board", "ev_values", "run_id", "step_index", "move", "ev_legal")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("tree") / "tree", 51)


def from_runs(paths: Any, **options: Any) -> a2store.StepTable:
    return a2store.StepTable.from_runs(paths, progress=False, **options)


def rows_of(runs: Sequence[tuple[int, Expected]]) -> dict[str, Array]:
    """Return the rows of numbered runs."""
    evs = []
    for _, run in runs:
        for step in run.branches:
            evs.append([np.nan] * 4 if step is None else [0.0 if value is None else value for value in step])
    columns = {
        "board": np.array([board for _, run in runs for board in run.boards], "u8"),
        "ev_values": np.array(evs, "f4").reshape(-1, 4),
        "run_id": np.array([run_id for run_id, run in runs for _ in run.boards], "u4"),
        "step_index": np.array([index for _, run in runs for index in run.indices], "u2"),
        "move": np.array([255 if move is None else move for _, run in runs for move in run.moves], "u1"),
        "ev_legal": np.array(
            [mask(*pair) for _, run in runs for pair in zip(run.boards, run.branches, strict=True)], "u1"
        ),
    }
    assert set(columns) == set(NAMES)
    return columns


def assert_rows(table: a2store.StepTable, expected: dict[str, Array]) -> None:
    rows = np.asarray(table)
    assert len(table) == len(rows) == len(expected["board"])
    for name in NAMES:
        assert_same(rows[name], expected[name], name)


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_rows_are_those_of_the_oracle(tree: Tree, expected: list[Expected], workers: int | None) -> None:
    table = from_runs(tree.root, workers=workers)
    wanted = rows_of(list(enumerate(expected)))
    assert set(np.unique(wanted["move"]).tolist()) == {0, 1, 2, 3, 255}
    assert_rows(table, wanted)
    assert (table.stride, table.nbytes, table.is_view) == (32, 32 * len(table), False)
    batch = table.take(np.arange(len(table)))
    np.testing.assert_array_equal(batch.tokens, oracle.tokens(wanted["board"]))
    np.testing.assert_array_equal(batch.ev_legal, oracle.mask_bits(wanted["ev_legal"]))


def test_rows_are_those_of_an_archive(tree: Tree, tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    archive.ingest(tree.root, progress=False)
    query = archive.sql("SELECT * FROM steps")
    for chosen_ev in ("stored", "one"):
        theirs = query.materialize(chosen_ev=chosen_ev, progress=False)
        ours = from_runs(tree.root, chosen_ev=chosen_ev)
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), chosen_ev
    with pytest.raises(ValueError, match="chosen_ev"):
        from_runs(tree.root, chosen_ev="two")


FILTERS: list[tuple[dict[str, Any], Callable[[Expected], bool]]] = [
    ({"min_score": 200}, lambda run: run.max_score >= 200),
    ({"max_score": 200}, lambda run: run.max_score <= 200),
    ({"min_score": 100, "max_score": 300}, lambda run: 100 <= run.max_score <= 300),
    ({"engine": "plain-d2"}, lambda run: run.engine == "plain-d2"),
    ({"engine": "γάμμα"}, lambda run: run.engine == "γάμμα"),
    ({"engine": "nobody"}, lambda run: False),
]


@pytest.mark.parametrize(("options", "wants"), FILTERS)
def test_filters_leave_runs_out_and_keep_their_numbers(
    tree: Tree, expected: list[Expected], options: dict[str, Any], wants: Callable[[Expected], bool]
) -> None:
    wanted = [(run_id, run) for run_id, run in enumerate(expected) if wants(run)]
    assert (0 < len(wanted) < len(expected)) == (options.get("engine") != "nobody")
    assert_rows(from_runs(tree.root).filter(**options), rows_of(wanted))


def test_runs_are_numbered_in_reading_order(tree: Tree, tmp_path: Path) -> None:
    paths = [path for path, name in tree.sources.items() if name in ("pack", "run", "session")]
    order = [paths[3], paths[0], paths[-1], paths[0]]
    table = from_runs([str(path) for path in order])
    runs = [run for path in order for run in sources_of(tree, path)]
    # A run that occurs twice counts twice, because there is no search for duplicates.
    assert_rows(table, rows_of(list(enumerate(runs))))
    pack = next(path for path, name in tree.sources.items() if name == "pack")
    reader = a2store.PackReader.open(pack)
    of_pack = from_runs(pack)
    assert np.asarray(of_pack).tobytes() == np.asarray(reader.to_table()).tobytes()
    for run_id in range(len(reader)):
        rows = np.asarray(of_pack.filter(run_ids=[run_id]))
        np.testing.assert_array_equal(rows["board"], reader[run_id].boards)
    assert len(from_runs([])) == 0
    (tmp_path / "README.md").write_text("nothing")
    assert len(from_runs(tmp_path)) == 0


def sources_of(tree: Tree, path: Path) -> list[Expected]:
    return [run for run in tree.expected() if run.source == path]


def test_a_table_has_scores_engines_and_phases_of_its_runs(
    tree: Tree, expected: list[Expected], tmp_path: Path
) -> None:
    """Scores, engines and phases are available to views, also for a table that was saved."""
    table = from_runs(tree.root)
    table.save(tmp_path / "rows.npy", progress=False)
    for known in (table, a2store.StepTable.load(tmp_path / "rows.npy", progress=False)):
        assert known.fingerprint == table.fingerprint
        high = known.filter(min_score=200, engine=["γάμμα", "test"])
        ids = [
            run_id for run_id, run in enumerate(expected) if run.max_score >= 200 and run.engine in ("γάμμα", "test")
        ]
        assert ids
        assert sorted(set(np.asarray(high)["run_id"].tolist())) == ids
        late = np.asarray(known.filter(phase="mid"))["board"]
        tiles = oracle.tokens(np.asarray(known)["board"]).max(axis=1)
        np.testing.assert_array_equal(late, np.asarray(known)["board"][(tiles >= 10) & (tiles < 12)])
    train, val = table.split(0.3, seed=1)
    assert not set(np.asarray(train)["run_id"].tolist()) & set(np.asarray(val)["run_id"].tolist())
    assert len(train) + len(val) == len(table)
    assert len(set(row_keys(table.loader(128, seed=2)).tolist())) == len(table)


def test_a_memory_limit_holds(tree: Tree, expected: list[Expected]) -> None:
    needed = 32 * sum(map(len, expected))
    assert len(from_runs(tree.root, memory_limit=needed)) == needed // 32
    for limit in (needed - 1, needed // 2, 0):
        with pytest.raises(a2store.MemoryLimitError) as caught:
            from_runs(tree.root, memory_limit=limit)
        assert caught.value.kind == "memory_limit"
        assert str(limit) in str(caught.value)


def test_bad_files_are_skipped_and_reported(tmp_path: Path) -> None:
    games = Games(54).take(6)
    folder = tmp_path / "in"
    folder.mkdir()
    whole = [oracle.encode_a2run2(game) for game in games]
    (folder / "a.a2run2").write_bytes(whole[0])
    (folder / "b.a2run2").write_bytes(whole[1][:-3])
    formats.write_pack(folder / "c.a2pack", [formats.Payload(data, formats.A2RUN2) for data in whole[1:5]])
    packs.flip(folder / "c.a2pack", packs.entry(folder / "c.a2pack", 2)[0] + 7)
    # A file counts as one run if its runs cannot be counted.
    formats.write_pack(folder / "d.a2pack", [formats.Payload(data, formats.A2RUN2) for data in whole[1:5]])
    packs.flip(folder / "d.a2pack", 40)
    (folder / "e.bin").write_bytes(b"A2T1" + bytes(50))
    (folder / "f.a2run2").write_bytes(whole[5])
    ids = {0: 0, 2: 1, 3: 2, 5: 4, 8: 5}
    for workers in (1, None):
        table = from_runs(folder, on_error="skip", workers=workers)
        rows = np.asarray(table)
        for run_id, game in ids.items():
            assert rows["board"][rows["run_id"] == run_id].tolist() == list(games[game].boards)
        assert set(rows["run_id"].tolist()) == set(ids)
        found = [(error.path.name, error.run, error.kind) for error in table.errors]
        assert found == [
            ("b.a2run2", None, "decode"),
            ("c.a2pack", 2, "checksum"),
            ("d.a2pack", None, "checksum"),
            ("e.bin", None, found[3][2]),
        ]
    some = table.filter(min_score=max(game.max_score for game in games))
    assert (len(some.errors), set(np.asarray(some)["run_id"].tolist()) <= set(ids)) == (4, True)
    with pytest.raises(a2store.DecodeError, check=lambda error: error.path == folder / "b.a2run2"):
        from_runs(folder)
    # Arguments and missing paths raise as before.
    with pytest.raises(FileNotFoundError):
        from_runs([folder, tmp_path / "absent"], on_error="skip")
    with pytest.raises(ValueError, match="on_error"):
        from_runs(folder, on_error="report")


def test_runs_that_cannot_become_rows(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        from_runs(tmp_path / "absent")
    (tmp_path / "notes.md").write_text("no run")
    with pytest.raises(a2store.DecodeError, check=lambda error: error.path == tmp_path / "notes.md"):
        from_runs(tmp_path / "notes.md")
    with pytest.raises(ValueError, match="workers"):
        from_runs(tree.root, workers=0)
    with pytest.raises(TypeError):
        from_runs(7)
    # A step index beyond 16 bits, from a session, whose rows store their index.
    (game,) = Games(53).take(1, steps=40)
    formats.write_session(tmp_path / "session", [game], action=True)
    steps = np.load(tmp_path / "session" / "steps.npy")
    for first, dtype in ((65_536 - len(game), np.uint16), (65_537 - len(game), np.uint32)):
        steps["step_idx"] = np.arange(first, first + len(game))
        np.save(tmp_path / "session" / "steps.npy", steps)
        metadata = tmp_path / "session" / "metadata.db"
        formats.execute(metadata, "UPDATE runs SET steps = 100000")
        # With a known rate, missing rows are an error.
        formats.execute(metadata, "DELETE FROM session WHERE meta_key = 'sample_rate'")
        found = np.asarray(from_runs(tmp_path / "session"))["step_index"]
        assert_same(found, np.arange(first, first + len(game), dtype=dtype))
