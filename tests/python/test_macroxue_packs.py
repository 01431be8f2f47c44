"""Macroxue packs: read, written and merged, compared with NumPy, sqlite3 and the packs of the field's packer."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import a2store
import formats
import macroxue_packs as packs
from archives import first_ingest
from games import play
from macroxue_packs import ALIGNED, PACKED, TYPES, Pack
from oracle import Array, cells

PACKS = ("pack", "pack2", "pack-sharded", "merged")
STEP_COLUMNS = (
    "run_id, step_index, board, tile_65536_mask, move, ev_legal, ev_up, ev_down, ev_left, ev_right, valuation_type,"
    " board_eval, max_exp, has_evs"
)
FIRST_SEED = 7_000_000_000
"""The low 32 bits of the seeds differ from the seeds."""


@pytest.fixture(scope="module")
def field(fixtures: Path) -> Path:
    folder = fixtures / "macroxue"
    if not folder.is_dir():
        pytest.skip("no fixtures of Macroxue packs")
    return folder


def made(num_runs: int = 4, *, seed: int = 3, length: int = 30, dtype: Any = PACKED, evals: bool = True) -> Pack:
    """Return a pack of games by the rules, with every field in use. One rank and one seed of run 1 are unusual."""
    rng = random.Random(seed)
    rows, runs = [], []
    for run_id in range(num_runs):
        game = play(rng, length + 5 * run_id, raw=True)
        own = FIRST_SEED + run_id
        runs.append((run_id, own, len(game), game.max_score, game.highest_tile))
        for step, (board, move, values) in enumerate(zip(game.boards, game.moves, game.branches, strict=True)):
            evs = values or (None,) * 4
            rank = 11 if (run_id, step) == (1, 2) else max(cells(board))
            step_seed = 99 if (run_id, step) == (1, 4) else own & 0xFFFFFFFF
            rows.append(
                (
                    run_id,
                    step,
                    board,
                    rng.randrange(-(2**31), 2**31) if evals else 0,
                    0,
                    move,
                    rng.randrange(3),
                    sum(1 << place for place, value in enumerate(evs) if value is not None),
                    rank,
                    step_seed,
                    [value or 0.0 for value in evs],
                )
            )
    whole = np.zeros(len(rows), dtype)
    for name in PACKED.names or ():
        whole[name] = np.array(rows, PACKED)[name]
    return Pack(whole, runs, [("note", '"é"')], dict(TYPES))


def write(folder: Path, pack: Pack, **options: Any) -> Path:
    return packs.write(folder, pack.rows, pack.runs, types=pack.types, session=pack.session, **options)


def ingest(tmp_path: Path, *paths: Path) -> tuple[a2store.Archive, a2store.IngestReport]:
    return first_ingest(tmp_path / "games.a2", list(paths))


def convert(paths: Sequence[Path], out: Path, **options: Any) -> a2store.ExportReport:
    return a2store.convert(list(paths), out, format="macroxue", progress=False, **options)


def export(archive: a2store.Archive, out: Path, where: str = "true", **options: Any) -> a2store.ExportReport:
    query = f"SELECT run_id FROM runs WHERE {where}"
    return archive.export_runs(query, out, format="macroxue", progress=False, **options)


def asked(archive: a2store.Archive, sql: str) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = pa.table(archive.sql(sql)).to_pydict()
    return columns


def assert_holds(archive: a2store.Archive, pack: Pack) -> None:
    """Check all runs and steps of an archive against a pack whose rows are in the order of runs."""
    runs = asked(
        archive, "SELECT source_id, seed, game_steps, max_score, highest_tile, num_steps FROM runs ORDER BY run_id"
    )
    found = zip(*(runs[name] for name in ("source_id", "seed", "game_steps", "max_score", "highest_tile")), strict=True)
    assert list(found) == pack.runs
    assert runs["num_steps"] == runs["game_steps"]
    steps = asked(archive, f"SELECT {STEP_COLUMNS} FROM steps ORDER BY run_id, step_index")
    rows = pack.rows
    names = {number: name for name, number in pack.types.items()}
    for column, name in (
        ("run_id", "run_id"),
        ("step_index", "step_index"),
        ("board", "board"),
        ("move", "move_dir"),
        ("tile_65536_mask", "tile_65536_mask"),
    ):
        assert steps[column] == rows[name].tolist()
    assert steps["valuation_type"] == [names[number] for number in rows["valuation_type"].tolist()]
    evals = {run: bool(rows["board_eval"][rows["run_id"] == run].any()) for run, *_ in pack.runs}
    assert steps["board_eval"] == [
        value if evals[run] else None
        for run, value in zip(rows["run_id"].tolist(), rows["board_eval"].tolist(), strict=True)
    ]
    largest = [
        max(packs.exps(*pair)) for pair in zip(rows["board"].tolist(), rows["tile_65536_mask"].tolist(), strict=True)
    ]
    assert steps["max_exp"] == largest
    assert steps["has_evs"] == (rows["ev_legal"] != 0).tolist()
    has = rows["ev_legal"] != 0
    assert np.array_equal(np.array(steps["ev_legal"])[has], rows["ev_legal"][has])
    for move, name in enumerate(("ev_up", "ev_down", "ev_left", "ev_right")):
        legal = rows["ev_legal"] >> move & 1
        expected = [
            value if bit else None for value, bit in zip(rows["branch_evs"][:, move].tolist(), legal, strict=True)
        ]
        assert steps[name] == expected


def content(pack: Pack) -> dict[str, list[Any]]:
    """Return the contents of a pack, without ids of runs and types, ``seed`` and ``max_rank``: writers make them."""
    names = {number: name for name, number in pack.types.items()}
    places = {run_id: place for place, (run_id, *_) in enumerate(pack.runs)}
    columns: dict[str, list[Any]] = {
        name: pack.rows[name].tolist() for name in PACKED.names or () if name not in ("seed", "max_rank")
    }
    columns["run_id"] = [places[run_id] for run_id in columns["run_id"]]
    columns["valuation_type"] = [names[number] for number in columns["valuation_type"]]
    return columns | {"runs": [facts for _, *facts in pack.runs]}


def assert_same_content(found: Path, expected: Pack) -> None:
    ours = packs.read(found)
    assert content(ours) == content(expected)
    assert [run[0] for run in ours.runs] == list(range(len(ours.runs)))
    assert ours.rows.dtype == PACKED
    seeds = np.array([seed & 0xFFFFFFFF for _, seed, *_ in ours.runs], "u4")
    assert np.array_equal(ours.rows["seed"], seeds[ours.rows["run_id"]])
    boards = zip(ours.rows["board"].tolist(), ours.rows["tile_65536_mask"].tolist(), strict=True)
    assert ours.rows["max_rank"].tolist() == [max(packs.exps(*board)) for board in boards]


def assert_same_tables(found: Path, expected: Path) -> None:
    ours, theirs = packs.read(found), packs.read(expected)
    assert (ours.runs, ours.types) == (theirs.runs, theirs.types)


def runs_of(table: a2store.StepTable) -> int:
    return len(set(table.take(range(len(table))).run_id.tolist()))


# Reading


@pytest.mark.parametrize("name", PACKS)
def test_packs_of_the_field_are_read(field: Path, tmp_path: Path, name: str) -> None:
    archive, report = ingest(tmp_path, field / name)
    expected = packs.read(field / name)
    assert (report.accepted, report.errors, report.num_steps) == (len(expected.runs), [], len(expected.rows))
    assert_holds(archive, expected)
    facts = asked(archive, "SELECT DISTINCT format, session, raw_evs, engine, elapsed_s, final_board FROM runs")
    assert {key: values[0] for key, values in facts.items()} == {
        "format": "macroxue",
        "session": name,
        "raw_evs": True,
        "engine": None,
        "elapsed_s": 0.0,
        "final_board": None,
    }
    assert archive.verify(progress=False).problems == []
    # A second ingest adds nothing, and sharded rows are the same runs.
    others = [field / other for other in ("pack", "pack-sharded")] if name in PACKS[::2] else [field / name]
    again = archive.ingest(others, progress=False)
    assert (again.accepted, again.errors) == (0, [])


@pytest.mark.parametrize("dtype", [PACKED, ALIGNED], ids=["packed", "aligned"])
@pytest.mark.parametrize("shards", [None, (50, 50, 50), (7, 100, 1, 42)])
def test_every_field_is_kept(tmp_path: Path, dtype: Any, shards: tuple[int, ...] | None) -> None:
    pack = made(dtype=dtype)
    assert (pack.rows.dtype.itemsize, len(pack.rows)) == (46 if dtype is PACKED else 48, 150)
    folder = write(tmp_path / "pack", pack, shards=shards)
    archive, report = ingest(tmp_path, folder)
    assert (report.accepted, report.errors) == (4, [])
    assert_holds(archive, pack)
    export(archive, tmp_path / "out")
    assert_same_content(tmp_path / "out", pack)
    archive.compact(progress=False)
    assert_holds(archive, pack)


def test_evaluations_of_zero_are_none(tmp_path: Path) -> None:
    pack = made(2, evals=False)
    pack.rows["board_eval"][-1] = 5
    archive, _ = ingest(tmp_path, write(tmp_path / "pack", pack))
    known = asked(archive, "SELECT run_id, count(board_eval) AS evals FROM steps GROUP BY run_id ORDER BY run_id")
    assert known["evals"] == [0, int((pack.rows["run_id"] == 1).sum())]


def test_an_empty_pack_and_an_empty_run(tmp_path: Path) -> None:
    empty = packs.write(tmp_path / "empty", np.zeros(0, PACKED), [])
    one = packs.write(tmp_path / "one", np.zeros(0, PACKED), [(4, 1, 0, 0, 2)])
    archive, report = ingest(tmp_path, empty, one)
    assert (report.accepted, report.errors, archive.num_steps) == (1, [], 0)
    export(archive, tmp_path / "out")
    assert_same_content(tmp_path / "out", packs.read(one))


def test_logs_have_valuation_types(field: Path, tmp_path: Path) -> None:
    archive, report = ingest(tmp_path, field / "logs")
    assert (report.accepted, report.errors) == (8, [])
    found = asked(archive, "SELECT valuation_type, count(*) AS n FROM steps GROUP BY 1 ORDER BY 1")
    logs = [row["valuation_type"] for _, rows in read_logs(field / "logs") for row in rows]
    assert found == {"valuation_type": sorted(set(logs)), "n": [logs.count(name) for name in sorted(set(logs))]}
    assert asked(archive, "SELECT count(board_eval) AS n FROM steps") == {"n": [0]}


# Writing


def read_logs(folder: Path) -> list[tuple[Any, list[Any]]]:
    return [
        (
            json.loads(path.read_text()),
            [json.loads(line) for line in gzip.open(str(path).replace(".meta.json", ".jsonl.gz"))],
        )
        for path in sorted(folder.glob("*.meta.json"))
    ]


@pytest.mark.parametrize(
    ("logs", "name", "shard_rows"),
    [
        ("logs", "pack", None),
        ("logs2", "pack2", None),
        ("logs", "pack-sharded", 300),
    ],
)
def test_logs_become_the_rows_of_the_fields_packer(
    field: Path, tmp_path: Path, logs: str, name: str, shard_rows: int | None
) -> None:
    report = convert([field / logs], tmp_path / "out", shard_rows=shard_rows)
    expected = packs.read(field / name)
    assert (report.runs, report.num_steps) == (len(expected.runs), len(expected.rows))
    assert_same_tables(tmp_path / "out", field / name)
    found, theirs = packs.row_files(tmp_path / "out"), packs.row_files(field / name)
    assert [path.name for path in found] == [path.name for path in theirs]
    for ours, path in zip(found, theirs, strict=True):
        # The evaluation is the only difference, and it is never invented.
        with_evals = np.load(ours)
        assert not with_evals["board_eval"].any()
        with_evals["board_eval"] = np.load(path)["board_eval"]
        assert np.array_equal(with_evals, np.load(path))
    again = packs.pack_logs(read_logs(field / logs), expected.types)
    assert np.array_equal(packs.read(tmp_path / "out").rows, again.rows)
    assert again.runs == expected.runs
    # The same from an archive.
    archive, _ = ingest(tmp_path, field / logs)
    export(archive, tmp_path / "exported", shard_rows=shard_rows)
    for path in found:
        assert (tmp_path / "exported" / path.name).read_bytes() == path.read_bytes()
    assert_same_tables(tmp_path / "exported", tmp_path / "out")


def test_some_runs_of_a_pack_become_another(tmp_path: Path) -> None:
    pack = made(dtype=ALIGNED)
    archive, _ = ingest(tmp_path, write(tmp_path / "pack", pack, shards=(50, 100)))
    export(archive, tmp_path / "some", "run_id IN (1, 3)")
    rows = pack.rows[np.isin(pack.rows["run_id"], [1, 3])]
    assert_same_content(tmp_path / "some", Pack(rows, [pack.runs[1], pack.runs[3]], [], pack.types))
    # After runs of others, and in shards.
    archive.ingest([write(tmp_path / "other", made(1, seed=9))], progress=False)
    export(archive, tmp_path / "new", "run_id > 2", shard_rows=20)
    assert [len(np.load(path)) for path in packs.row_files(tmp_path / "new")] == [20, 20, 20, 15]
    with pytest.raises(ValueError, match="for original, runs that came from run files, found run 0, from macroxue"):
        archive.export_runs("SELECT run_id FROM runs", tmp_path / "no", format="original", progress=False)
    assert not (tmp_path / "no").exists()
    # A session reads the runs of a pack.
    query = "SELECT run_id FROM runs WHERE run_id < 4"
    archive.export_runs(query, tmp_path / "session", format="session", progress=False)
    assert len(a2store.StepTable.from_session(tmp_path / "session")) == len(pack.rows)


def test_runs_of_other_formats_become_packs(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=3, depth=0, seed=1, progress=False)
    report = convert([tmp_path / "runs"], tmp_path / "pack")
    pack = packs.read(tmp_path / "pack")
    assert [run[:1] + run[2:3] for run in pack.runs] == [
        (run, int((pack.rows["run_id"] == run).sum())) for run in range(3)
    ]
    assert (report.runs, report.num_steps) == (3, len(pack.rows))
    assert set(pack.rows["valuation_type"].tolist()) == {0}
    assert pack.types == TYPES
    assert [run[1] for run in pack.runs] == [-1] * 3  # Run files have no seed.
    archive, found = ingest(tmp_path, tmp_path / "pack")
    assert (found.accepted, found.errors) == (3, [])
    assert asked(archive, "SELECT DISTINCT seed FROM runs") == {"seed": [None]}
    session = tmp_path / "session"
    a2store.convert([tmp_path / "runs"], session, format="session", moves=False, progress=False)
    with pytest.raises(ValueError, match="unknown moves"):
        convert([session], tmp_path / "unknown")
    assert not (tmp_path / "unknown").exists()


# Merging


def test_two_packs_merge_as_the_fields_tool_merges_them(field: Path, tmp_path: Path) -> None:
    convert([field / "pack", field / "pack2"], tmp_path / "at once")
    expected = field / "merged"
    assert np.array_equal(packs.read(tmp_path / "at once").rows, packs.read(expected).rows)
    assert_same_tables(tmp_path / "at once", expected)


def test_valuation_types_are_unified(tmp_path: Path) -> None:
    first, second = made(2, seed=1), made(2, seed=2)
    first.types, second.types = {"search": 0, "tuple11": 1, "tuple10": 2}, {"deep": 0, "search": 1, "é\n": 2}
    left, right = write(tmp_path / "left", first), write(tmp_path / "right", second)
    convert([left, right], tmp_path / "merged")
    merged = packs.read(tmp_path / "merged")
    used = [{0: "deep", 1: "search", 2: "é\n"}[number] for number in second.rows["valuation_type"].tolist()]
    names = {number: name for name, number in merged.types.items()}
    assert [names[number] for number in merged.rows["valuation_type"][len(first.rows) :].tolist()] == used
    assert {name: merged.types[name] for name in TYPES} == TYPES
    assert sorted(merged.types.values()) == [0, 1, 2, 3, 4]


def test_bad_outputs(tmp_path: Path) -> None:
    folder = write(tmp_path / "pack", made(2))
    bad = made(1)
    bad.rows["move_dir"][3] = 9
    with pytest.raises(a2store.DecodeError, match="move_dir"):
        convert([folder, write(tmp_path / "bad", bad)], tmp_path / "none")
    with pytest.raises(FileExistsError):
        convert([folder], tmp_path / "bad")
    with pytest.raises(ValueError, match="shard_rows"):
        convert([folder], tmp_path / "none", shard_rows=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "pack"]


# Damage


def patched(name: str, row: int, value: Any) -> Callable[[Path], None]:
    def patch(folder: Path) -> None:
        rows = np.load(folder / "steps.npy")
        rows[name][row] = value
        np.save(folder / "steps.npy", rows)

    return patch


def executed(sql: str) -> Callable[[Path], None]:
    return lambda folder: formats.execute(folder / "metadata.db", sql)


def rows_as(change: Callable[[Array], Array]) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / "steps.npy", change(np.load(folder / "steps.npy")))


def typed(text: str) -> Callable[[Path], None]:
    def write_text(folder: Path) -> None:
        (folder / "valuation_types.json").write_text(text)

    return write_text


def swapped(rows: Array) -> Array:
    rows[[3, 4]] = rows[[4, 3]]
    return rows


def moved(rows: Array) -> Array:
    """Move a row of run 0 behind the rows of run 1."""
    return np.concatenate([rows[:29], rows[30:65], rows[29:30], rows[65:]])


ONE_RUN = [
    (patched("move_dir", 5, 4), 0, "move_dir: expected 0..=3, found 4"),
    (patched("ev_legal", 5, 16), 0, "ev_legal: expected 0..=15, found 16"),
    (patched("tile_65536_mask", 5, 1), 0, "tile_65536_mask: expected a mask of cells with the nibble 15, found 1"),
    (patched("branch_evs", 40, np.nan), 1, "branch_evs: expected a finite number, found NaN"),
    (patched("valuation_type", 40, 3), 1, "valuation_type: expected an id in valuation_types.json, found 3"),
    (rows_as(lambda rows: np.delete(rows, 7)), 0, "rows of the run: expected 30 (runs.steps), found 29"),
    (rows_as(lambda rows: rows[30:]), 0, "rows of the run: expected 30 (runs.steps), found 0"),
    (executed("UPDATE runs SET max_score = -1 WHERE id = 2"), 2, "runs.max_score: expected NULL or an INTEGER"),
]


@pytest.mark.parametrize("change", [swapped, moved])
def test_rows_may_be_in_any_order(tmp_path: Path, change: Callable[[Array], Array]) -> None:
    folder = write(tmp_path / "pack", made())
    rows_as(change)(folder)
    archive, report = ingest(tmp_path, folder)
    assert (report.accepted, report.errors) == (4, [])
    moves = asked(archive, "SELECT step_index FROM steps WHERE run_id = 0 ORDER BY step_index")["step_index"]
    assert moves == list(range(30))


def test_rows_without_a_run_are_ignored_with_a_warning(tmp_path: Path) -> None:
    folder = write(tmp_path / "pack", made())
    executed("DELETE FROM runs WHERE id = 1")(folder)
    with pytest.warns(UserWarning, match="rows are ignored, because metadata.db lacks their run 1"):
        _, report = ingest(tmp_path, folder)
    assert (report.accepted, report.errors) == (3, [])


@pytest.mark.parametrize(("change", "run", "message"), ONE_RUN, ids=[message[:40] for *_, message in ONE_RUN])
def test_a_damaged_run_costs_no_other(tmp_path: Path, change: Callable[[Path], None], run: int, message: str) -> None:
    folder = write(tmp_path / "pack", made())
    change(folder)
    archive, report = ingest(tmp_path, folder)
    lost = asked(archive, "SELECT source_id FROM runs ORDER BY 1")["source_id"]
    assert lost == [other for other in range(4) if other != run]
    assert any(message in error.message for error in report.errors), report.errors
    assert all(error.path.is_relative_to(folder) and error.run is not None for error in report.errors)
    with pytest.raises(a2store.DecodeError):
        a2store.StepTable.from_runs([folder], progress=False)
    table = a2store.StepTable.from_runs([folder], progress=False, on_error="skip")
    assert (runs_of(table), len(table.errors)) == (3, len(report.errors))


def test_an_error_names_the_row_in_its_shard(tmp_path: Path) -> None:
    pack = made()
    pack.rows["move_dir"][67] = 200
    folder = write(tmp_path / "pack", pack, shards=(60, 60, 30))
    _, report = ingest(tmp_path, folder)
    (error,) = report.errors
    path = folder / "steps-00001.npy"
    offset = path.stat().st_size - 60 * 46 + 7 * 46 + 22
    assert error.path == path
    assert error.message == f"run 2: byte {offset} (step 2): move_dir: expected 0..=3, found 200"


WHOLE = [
    (lambda folder: (folder / "valuation_types.json").unlink(), "valuation_types.json"),
    (lambda folder: (folder / "metadata.db").unlink(), "metadata.db"),
    (typed("[]"), "valuation types: expected an object"),
    (typed('{"search": 256}'), "integer `256`"),
    (typed('{"search": 0, "tuple10": 0}'), 'the id 0 of both "search" and "tuple10"'),
    (lambda folder: shutil.copyfile(folder / "steps.npy", folder / "steps-00000.npy"), "not both"),
    (lambda folder: (folder / "steps.npy").rename(folder / "steps-00002.npy"), "shards numbered from 0 or 1"),
    (lambda folder: (folder / "steps.npy").write_bytes((folder / "steps.npy").read_bytes()[:-1]), "length of the file"),
    (executed("DROP TABLE runs"), "no such table: runs"),
    (lambda folder: (folder / "metadata.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000), "schema: "),
]


@pytest.mark.parametrize(("change", "message"), WHOLE, ids=[message[:30] for _, message in WHOLE])
def test_a_damaged_pack_is_one_error(tmp_path: Path, change: Callable[[Path], Any], message: str) -> None:
    folder = write(tmp_path / "pack", made())
    change(folder)
    archive, report = ingest(tmp_path, folder)
    assert archive.num_runs == 0
    assert message in " ".join(map(str, report.errors))
    with pytest.raises((a2store.Error, OSError)):
        convert([folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()
