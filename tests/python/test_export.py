"""Export of runs from an archive in every format: identical bytes, equal content, or an early error."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import a2store
import archives
import formats
import logs
import oracle
import packs
from formats import A2RUN2, A2T1, Payload
from oracle import Branches, Game
from sources import Expected
from trees import Games, Tree, write_tree


@dataclass
class Kept:
    """An archive of run files, and their bytes by run id."""

    archive: a2store.Archive
    files: list[bytes]
    games: list[Game]


def odd_files(games: Games) -> list[bytes]:
    """Sound files that no current encoder would write, or with data that no column holds."""
    names = [None, "", "γάμμα", "x", "y", "z"]
    plain = [replace(game, engine=name) for game, name in zip(games.take(6), names, strict=True)]
    # Beyond the range of a timestamp in milliseconds.
    files = [oracle.encode_a2run2(replace(game, start_unix_s=LATE - place)) for place, game in enumerate(plain)]
    files += [oracle.encode_a2t1(replace(game, start_unix_s=place)) for place, game in enumerate(plain)]
    for place, game in enumerate(games.take(4)):
        data = oracle.encode_a2run2(game)
        length = len(oracle.varint(len(game)))
        # The number of steps takes up to four bytes more than necessary.
        longer = bytearray(data[:length])
        longer[-1] |= 128
        files.append(bytes(longer) + b"\x80" * place + b"\0" + data[length:])
    nan = struct.unpack("<f", bytes.fromhex("0102c3ff"))[0]
    (game,) = games.take(1)
    odd: tuple[Branches, ...] = ((nan, -0.0, float("inf"), 0.0), (None, None, None, None), (1.0, None, -5.5, 2.0))
    game = replace(game, branches=(*odd, *game.branches[3:]), elapsed_s=float("-inf"))
    files.append(oracle.encode_a2run2(replace(game, max_score=2**63 - 1, highest_tile=7)))
    return files


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("kept")
    games = Games(31)
    files = odd_files(games)
    for data in files:
        formats.decode_file(data)
    for number, data in enumerate(files):
        (folder / f"a{number:02}.a2run2").write_bytes(data)
    payloads = packs.payloads_of(games.take(9))
    odd = [Payload(data, A2RUN2) for data in odd_files(games) if not data.startswith(b"A2T1")]
    formats.write_pack(folder / "b.a2pack", [*payloads, *odd], align=8)
    files += [payload.data for payload in (*payloads, *odd)]
    archive = a2store.Archive.create(folder / "games.a2")
    # In two commits, so that each table has two files.
    archive.ingest(sorted(folder.glob("*.a2run2")), progress=False)
    report = archive.ingest(folder / "b.a2pack", progress=False)
    assert (archive.num_runs, report.errors) == (len(files), [])
    return Kept(archive, files, [formats.decode_file(data) for data in files])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return write_tree(tmp_path_factory.mktemp("tree") / "tree", 32)


@pytest.fixture(scope="module")
def mixed(tree: Tree, expected: list[Expected], tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    archive = a2store.Archive.create(tmp_path_factory.mktemp("mixed") / "games.a2")
    assert archive.ingest(tree.root, progress=False).accepted == len(expected)
    return archive


LATE = 2**64 - 1
ALL = "SELECT run_id FROM runs"


def export(archive: a2store.Archive, out: Path, query: str = ALL, **options: Any) -> a2store.ExportReport:
    return archive.export_runs(query, out, progress=False, **options)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def same(one: Game, other: Game) -> bool:
    """Return whether two games are equal, with NaNs equal to each other."""
    return oracle.encode_a2run2(one) == oracle.encode_a2run2(other)


def only(game: Game) -> Game:
    """Return the game without the data that A2T1 cannot hold."""
    return replace(game, branches=(None,) * len(game), engine=game.engine or None)


# Run files


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_original_returns_the_ingested_bytes(kept: Kept, tmp_path: Path, workers: int | None) -> None:
    report = export(kept.archive, tmp_path / "out", workers=workers)
    kinds = {data.startswith(b"A2T1") for data in kept.files}
    assert kinds == {True, False}
    files = [
        f"run-{place:08}.{'bin' if data.startswith(b'A2T1') else 'a2run2'}" for place, data in enumerate(kept.files)
    ]
    assert names(tmp_path / "out") == files
    for name, data in zip(files, kept.files, strict=True):
        assert (tmp_path / "out" / name).read_bytes() == data, name
    assert (report.path, report.runs, report.num_files) == (tmp_path / "out", len(files), len(files))
    assert report.num_steps == kept.archive.num_steps


def test_originals_survive_compaction_and_a_second_archive(kept: Kept, tmp_path: Path) -> None:
    archive = a2store.Archive.open(archives.copied(kept.archive.path, tmp_path / "games.a2"))
    archive.compact(progress=False)
    assert export(archive, tmp_path / "one").runs == len(kept.files)
    again = archives.ingested(tmp_path / "again.a2", tmp_path / "one")
    export(again, tmp_path / "two")
    for name in names(tmp_path / "one"):
        assert (
            (tmp_path / "two" / name).read_bytes()
            == (tmp_path / "one" / name).read_bytes()
            == kept.files[int(name[4:12])]
        )


def converted(kept: Kept, folder: Path) -> list[tuple[bytes, bytes]]:
    """Return each run as a file of either format."""
    export(kept.archive, folder / "v1", format="a2t1")
    export(kept.archive, folder / "v2", format="a2run2")
    assert len(names(folder / "v1")) == len(names(folder / "v2")) == len(kept.files)
    return [
        ((folder / "v1" / f"run-{place:08}.bin").read_bytes(), (folder / "v2" / f"run-{place:08}.a2run2").read_bytes())
        for place in range(len(kept.files))
    ]


def test_run_files_of_the_other_format_have_the_same_content(kept: Kept, tmp_path: Path) -> None:
    for pair, data, game in zip(converted(kept, tmp_path), kept.files, kept.games, strict=True):
        # A file that is already in the format is exported unchanged.
        assert data in pair
        # A start time that no column holds is kept too.
        assert same(oracle.decode_a2t1(pair[0]), only(game))
        if game.start_unix_s < 2**60:
            assert same(oracle.decode_a2run2(pair[1]), game)


def test_real_files_are_exported_unchanged(fixtures: Path, tmp_path: Path) -> None:
    paths = sorted(path for path in (fixtures / "runs").iterdir() if path.suffix in (".bin", ".a2run2"))
    for number, source in enumerate((fixtures / "runs", fixtures / "mixed.a2pack")):
        archive, out = archives.ingested(tmp_path / f"{number}.a2", source), tmp_path / f"out{number}"
        export(archive, out)
        assert sorted((out / name).read_bytes() for name in names(out)) == sorted(path.read_bytes() for path in paths)


def test_the_query_selects_runs_and_their_order(kept: Kept, tmp_path: Path) -> None:
    queries: dict[str, list[int]] = {
        "SELECT run_id FROM runs WHERE run_id IN (7, 3, 5) ORDER BY run_id DESC": [3, 5, 7],
        "SELECT run_id FROM steps WHERE run_id < 2": [0, 1],
        "SELECT max_score, run_id FROM runs WHERE run_id = 4 UNION ALL SELECT 1, 4": [4],
        "SELECT CAST(run_id AS BIGINT) AS run_id FROM runs WHERE run_id IN (2, 9)": [2, 9],
        "SELECT run_id FROM runs WHERE run_id > 1000": [],
    }
    for number, (query, ids) in enumerate(queries.items()):
        report = export(kept.archive, tmp_path / f"{number}", query)
        assert [int(Path(name).stem[4:]) for name in names(tmp_path / f"{number}")] == ids, query
        assert (report.runs, report.num_files) == (len(ids), len(ids))
        export(kept.archive, tmp_path / f"{number}.a2pack", query, format="a2pack")
        entries, _ = formats.read_pack(tmp_path / f"{number}.a2pack")
        assert [entry.data for entry in entries if isinstance(entry, Payload)] == [kept.files[place] for place in ids]
    query = "SELECT run_id FROM runs WHERE engine = $name AND run_id < $most"
    report = export(kept.archive, tmp_path / "bound", query, params={"name": "x", "most": 10**6})
    assert report.runs == sum(game.engine == "x" for game in kept.games) > 0


def test_more_than_a_thousand_files_go_to_folders_of_a_thousand(tmp_path: Path) -> None:
    (game,) = Games(33).take(1, steps=9)
    game = replace(game, branches=(None,) * len(game))
    played = [replace(game, start_unix_s=1 + place) for place in range(1003)]
    payloads = [Payload(oracle.encode_a2run2(game), A2RUN2) for game in played]
    formats.write_pack(tmp_path / "a.a2pack", payloads, align=8)
    archive = archives.ingested(tmp_path / "games.a2", tmp_path / "a.a2pack")
    report = export(archive, tmp_path / "out")
    assert (report.runs, report.num_files) == (1003, 1003)
    files = sorted((tmp_path / "out").rglob("*.a2run2"), key=lambda path: path.name)
    assert [file.name for file in files] == [f"run-{place:08}.a2run2" for place in range(1003)]
    assert [file.read_bytes() for file in files] == [payload.data for payload in payloads]
    folders = {file.parent for file in files}
    assert [len(list(folder.iterdir())) for folder in sorted(folders)] == [1000, 3]
    assert all(folder.parent == tmp_path / "out" for folder in folders)
    export(archive, tmp_path / "few", f"{ALL} WHERE run_id >= 3")
    assert {path.parent for path in (tmp_path / "few").rglob("*.a2run2")} == {tmp_path / "few"}


# Formats that hold many runs


@pytest.mark.parametrize("options", [{}, {"align": 8}, {"align": 512, "workers": 2}])
def test_a_pack_holds_the_original_files(kept: Kept, tmp_path: Path, options: dict[str, Any]) -> None:
    report = export(kept.archive, tmp_path / "out.a2pack", format="a2pack", **options)
    entries, stats = formats.read_pack(tmp_path / "out.a2pack")
    kinds = [A2T1 if data.startswith(b"A2T1") else A2RUN2 for data in kept.files]
    assert entries == [Payload(data, kind) for data, kind in zip(kept.files, kinds, strict=True)]
    assert stats == packs.nearest([len(game) for game in kept.games])
    assert (report.path, report.runs, report.num_files) == (tmp_path / "out.a2pack", len(kept.files), 1)
    align = options.get("align", 4096)
    assert {packs.entry(report.path, place)[0] % align for place in range(len(kept.files))} == {0}
    # If the output is a folder, the file gets its usual name.
    (tmp_path / "folder").mkdir()
    again = export(kept.archive, tmp_path / "folder", format="a2pack", **options)
    assert again.path.parent == tmp_path / "folder"
    assert again.path.read_bytes() == report.path.read_bytes()


def test_lines_equal_the_output_of_the_existing_tool(tree: Tree, tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    paths = [path for path, name in tree.sources.items() if name in ("run", "pack")]
    archive.ingest(paths, progress=False)
    export(archive, tmp_path / "out")
    files = [(tmp_path / "out" / name).read_bytes() for name in names(tmp_path / "out")]
    export(archive, tmp_path / "runs.jsonl", format="jsonl")
    logs.check_runs_jsonl(tmp_path / "runs.jsonl", [formats.decode_file(data) for data in files])
    export(archive, tmp_path / "steps.jsonl", format="jsonl", by_step=True)
    logs.check_steps_jsonl(tmp_path / "steps.jsonl", files)
    # The pack of these runs gives the same lines, compact or not.
    export(archive, tmp_path / "a.a2pack", format="a2pack", compress="lz4")
    assert formats.ENTRY.unpack_from((tmp_path / "a.a2pack").read_bytes(), 28)[3] == formats.LZ4
    for by_step in (False, True):
        for compact in (False, True):
            name = f"{by_step}-{compact}"
            export(archive, tmp_path / name, format="jsonl", by_step=by_step, compact=compact, workers=2)
            pack = a2store.PackReader.open(tmp_path / "a.a2pack")
            pack.to_jsonl(tmp_path / "of-pack", by_step=by_step, compact=compact, progress=False)
            assert (tmp_path / name).read_bytes() == (tmp_path / "of-pack").read_bytes(), name


# Rejections


def ids_of(archive: a2store.Archive, condition: str) -> list[int]:
    return list(pa.table(archive.sql(f"{ALL} WHERE {condition} ORDER BY run_id"))["run_id"].to_pylist())


@pytest.mark.parametrize("format_name", ["a2t1", "a2run2", "a2pack", "jsonl", "original"])
def test_a_run_without_a_final_board_is_rejected_before_anything_is_written(
    mixed: a2store.Archive, tmp_path: Path, format_name: str
) -> None:
    whole = ids_of(mixed, "final_board IS NOT NULL AND format IN ('a2t1', 'a2run2')")
    assert len(whole) > 10
    for source in ("packdat", "npy", "session", "macroxue"):
        (run_id, *_) = ids_of(mixed, f"final_board IS NULL AND format = '{source}'")
        query = f"{ALL} WHERE run_id IN ({', '.join(map(str, [*whole, run_id]))})"
        with pytest.raises(ValueError, match=rf"\b{run_id}\b"):
            export(mixed, tmp_path / "out", query, format=format_name)
        assert names(tmp_path) == []


@pytest.mark.parametrize("format_name", ["packdat", "npy"])
def test_a_run_without_all_moves_or_steps_is_rejected(mixed: a2store.Archive, tmp_path: Path, format_name: str) -> None:
    for session in ("boards", "sampled", "sampled-moves"):
        query = f"{ALL} WHERE session LIKE '%={session}' OR format = 'a2run2'"
        with pytest.raises(ValueError, match="expected"):
            export(mixed, tmp_path / "out", query, format=format_name)
        assert names(tmp_path) == []
    query = f"{ALL} WHERE session LIKE '%=moves'"
    assert export(mixed, tmp_path / "out", query, format=format_name).runs == 4


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max_score FROM runs",
        "SELECT run_id + 100000 AS run_id FROM runs",
        "SELECT -1 AS run_id",
        "SELECT 'one' AS run_id",
        "SELECT 1.5 AS run_id",
        "SELECT CAST(NULL AS INT) AS run_id",
    ],
)
@pytest.mark.parametrize("format_name", ["original", "a2pack"])
def test_a_query_without_run_ids_is_rejected(kept: Kept, tmp_path: Path, format_name: str, query: str) -> None:
    with pytest.raises(ValueError, match="run_id"):
        export(kept.archive, tmp_path / "out", query, format=format_name)
    assert names(tmp_path) == []


def test_bad_arguments(kept: Kept, tmp_path: Path) -> None:
    for options in (
        {"format": "parquet"},
        {"format": "a2pack", "compress": "gzip"},
        {"format": "a2pack", "align": 2**20 + 1},
        {"format": "npy", "shard_rows": 0},
        {"format": "original", "shard_rows": 10},
        {"workers": 0},
    ):
        with pytest.raises(ValueError, match="expected"):
            export(kept.archive, tmp_path / "out", **options)
    with pytest.raises(a2store.QueryError):
        export(kept.archive, tmp_path / "out", "SELECT run_id FROM games")
    with pytest.raises(a2store.QueryError):
        export(kept.archive, tmp_path / "out", f"{ALL} WHERE run_id = $id")
    assert names(tmp_path) == []


@pytest.mark.parametrize("format_name", ["original", "a2pack", "packdat", "npy", "jsonl"])
def test_no_file_is_replaced(kept: Kept, tmp_path: Path, format_name: str) -> None:
    out = tmp_path / "out"
    query = f"{ALL} WHERE run_id < 8 AND start_time IS NOT NULL"
    export(kept.archive, out, query, format=format_name)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError) as caught:
        export(kept.archive, out, f"{ALL} WHERE run_id > 4 AND start_time IS NOT NULL", format=format_name)
    assert str(out) in str(caught.value.filename)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before
    if format_name != "original":
        assert after == before


def test_a_missing_folder(kept: Kept, tmp_path: Path) -> None:
    for format_name in ("a2pack", "packdat", "jsonl"):
        with pytest.raises(FileNotFoundError):
            export(kept.archive, tmp_path / "absent" / "out", format=format_name)
    assert export(kept.archive, tmp_path / "new" / "folder", f"{ALL} WHERE run_id = 1").num_files == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
