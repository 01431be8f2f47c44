"""The critic's training data: labels, embeddings, weights, splits, ranks and resumption, compared with plain NumPy."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import a2store
import formats
from a2store.critic import CriticData, embed, highest_tiles
from a2store.critic._tables import run_ids, spread_rows
from games import play
from oracle import Game
from test_critic_metrics import from_bf16

pytestmark = [pytest.mark.filterwarnings("ignore:thresholds"), pytest.mark.usefixtures("one_thread")]
THRESHOLDS = (64, 128, 256)
"""Tiles that some random games reach and others do not."""
HIGHER = (256, 512)
"""Tiles that some games of the built-in player reach and others do not."""


@pytest.fixture(scope="module")
def played() -> list[Game]:
    rng = random.Random(11)
    return [play(rng, rng.choice([40, 90, 400])) for _ in range(40)]


@pytest.fixture(params=[None, 3], ids=["whole", "shards"])
def session(request: pytest.FixtureRequest, played: list[Game], tmp_path: Path) -> Path:
    formats.write_session(tmp_path / "session", played, shards=request.param, embedding=3)
    return tmp_path / "session"


def tiles_by_tokens(played: list[Game]) -> dict[bytes, set[int]]:
    """Return the highest tiles of the runs in which each board occurs."""
    found: dict[bytes, set[int]] = defaultdict(set)
    for game in played:
        for board in game.boards:
            found[bytes(board >> 4 * (15 - k) & 15 for k in range(16))].add(game.highest_tile)
    return found


def test_tokens_and_labels_of_a_session(session: Path, played: list[Game]) -> None:
    data = CriticData(session, 100, thresholds=THRESHOLDS, seed=3)
    rows = sum(map(len, played))
    assert (data.num_rows, data.num_runs, len(data), data.dim) == (rows, len(played), -(-rows // 100), None)
    tiles = tiles_by_tokens(played)
    seen: Counter[bytes] = Counter()
    count = 0
    for tokens, labels in data:
        assert (tokens.dtype, labels.dtype) == (torch.int64, torch.float32)
        assert (tokens.shape[1:], labels.shape) == ((16,), (len(tokens), 3))
        for row, label in zip(tokens.tolist(), labels.tolist(), strict=True):
            assert label in [[float(tile >= t) for t in THRESHOLDS] for tile in tiles[bytes(row)]]
            seen[bytes(row)] += 1
        count += len(tokens)
    assert count == rows
    assert seen == Counter(dict.fromkeys(tiles, 0)) + Counter(
        bytes(board >> 4 * (15 - k) & 15 for k in range(16)) for game in played for board in game.boards
    )


def test_embeddings_of_a_session(session: Path, played: list[Game]) -> None:
    data = CriticData(session, 64, thresholds=THRESHOLDS, use_embeddings=True, seed=1)
    assert data.dim == 3
    # write_session fills the rows with consecutive numbers, so the numbers identify the row.
    written = from_bf16(np.load(session / "embeddings.bf16.npy"))
    tiles = np.repeat([game.highest_tile for game in played], [len(game) for game in played])
    expected = {tuple(row) for row in np.column_stack([written, *(tiles >= t for t in THRESHOLDS)]).tolist()}
    found = []
    for embedding, labels in data:
        assert (embedding.dtype, embedding.shape[1:], labels.shape[1:]) == (torch.bfloat16, (3,), (3,))
        found += torch.cat([embedding.float(), labels], 1).tolist()
    assert len(found) == len(written)
    assert {tuple(row) for row in found} == expected
    assert found != sorted(found)


def test_float32_embeddings_of_an_archive(archive: a2store.Archive, table: a2store.StepTable, tmp_path: Path) -> None:
    def encoder(tokens: Any) -> Any:
        return tokens.astype("f4") * np.float32(1.1)

    embed(table.filter(run_ids=range(30)), encoder, tmp_path, dtype="f32", progress=False)
    # Different rows of the same games, in a different order.
    sql = """
        SELECT run_id, step_index, board, highest_tile FROM steps
        WHERE run_id < 20 AND step_index % 3 = 1 ORDER BY board"""
    options: dict[str, Any] = {"embeddings": tmp_path, "thresholds": (256, 512), "seed": 2}
    embedded = CriticData(archive.sql(sql), 500, use_embeddings=True, **options)
    plain = CriticData(archive.sql(sql), 500, thresholds=(256, 512), seed=2)
    count = 0
    for (embedding, labels), (tokens, same) in zip(embedded, plain, strict=True):
        assert embedding.dtype == torch.float32
        np.testing.assert_array_equal(embedding.numpy(), encoder(tokens.numpy()))
        assert torch.equal(labels, same)
        count += len(labels)
    assert count == embedded.num_rows > 1000


def test_sources_agree(archive: a2store.Archive) -> None:
    """An archive, its path, a query and tables give the same rows and labels."""
    tiles = dict(archive.sql("SELECT run_id, highest_tile FROM runs").to_arrow().to_pandas().to_numpy().tolist())
    assert highest_tiles(archive) == tiles
    query = archive.sql("SELECT * FROM steps")
    table = query.materialize(progress=False)
    sources: list[tuple[Any, Any]] = [
        (archive, None),
        (archive.path, None),
        (str(archive.path), None),
        (query, None),
        (query, tiles),
        (table, tiles),
        (query.materialize(extra=["highest_tile"], progress=False), None),
    ]
    rows = np.asarray(table)
    expected = np.array([[tiles[run] >= t for t in HIGHER] for run in rows["run_id"].tolist()])
    for source, given in sources:
        data = CriticData(source, 4096, thresholds=HIGHER, highest_tile=given, shuffle=False)
        inputs, labels = (torch.cat(parts) for parts in zip(*data, strict=True))
        np.testing.assert_array_equal(labels.numpy(), expected)
        np.testing.assert_array_equal(inputs.numpy(), table.take(np.arange(len(table))).tokens)
        np.testing.assert_allclose(data.base_rate, expected.mean(0))
        negative, positive = (~expected).sum(0), expected.sum(0)
        assert positive.min() > 0
        np.testing.assert_allclose(data.pos_weight.numpy(), negative / positive, rtol=1e-6)
        assert data.num_positive_runs.tolist() == [sum(tile >= t for tile in tiles.values()) for t in HIGHER]


def test_a_threshold_that_all_runs_or_no_runs_reach(archive: a2store.Archive) -> None:
    data = CriticData(archive, thresholds=(2, 256, 65536))
    assert data.base_rate[0] == 1.0
    assert data.base_rate[2] == 0.0
    assert data.pos_weight[[0, 2]].tolist() == [1.0, 1.0]
    assert data.pos_weight[1] != 1.0


@pytest.mark.parametrize("limit", [None, 20])
def test_split(played: list[Game], tmp_path: Path, limit: int | None) -> None:
    # Runs k and k + 40 have the same game.
    formats.write_session(tmp_path, played * 2)
    options: dict[str, Any] = {"max_steps_per_run": limit, "seed": 5, "drop_last": True, "symmetries": True}
    whole = CriticData(tmp_path, 64, thresholds=THRESHOLDS, **options)
    train, val = whole.split(0.3, seed=2)
    for data, parts in ((whole, (train, val)), (train, train.split(0.4, seed=3))):
        runs = [set(run_ids(part.table).tolist()) for part in parts]
        assert {run % 40 for run in runs[0]}.isdisjoint(run % 40 for run in runs[1])
        assert runs[0] | runs[1] == set(run_ids(data.table).tolist())
        assert [part.num_runs for part in parts] == [len(part) for part in runs]
        assert sum(part.num_rows for part in parts) == data.num_rows
    assert sum(len(labels) for _, labels in val) == val.num_rows
    assert sum(len(labels) for _, labels in train) == train.num_rows // 64 * 64
    # The weights are those of this part.
    rate = train.base_rate
    np.testing.assert_allclose(train.pos_weight.numpy(), (1 - rate) / rate, rtol=1e-5)
    assert (rate != val.base_rate).any()
    # The held-out part is in order and unchanged.
    boards = torch.cat([tokens for tokens, _ in val])
    np.testing.assert_array_equal(boards.numpy(), val.table.take(np.arange(len(val.table))).tokens)


def test_open_steps(archive: a2store.Archive) -> None:
    data = CriticData(archive, thresholds=(128, 256, 512), shuffle=False)
    tokens, labels = (torch.cat(parts).numpy() for parts in zip(*data, strict=True))
    expected = [[2 ** int(row.max()) < t for t in data.thresholds] for row in tokens]
    found = data.open_steps()
    np.testing.assert_array_equal(found, expected)
    # If a board has the tile, its run reaches the tile.
    assert (labels[~found] == 1).all()
    assert set(np.unique(labels[found])) == {0, 1}


@pytest.mark.parametrize("limit", [1, 50, 10_000])
def test_max_steps_per_run(archive: a2store.Archive, table: a2store.StepTable, limit: int) -> None:
    data = CriticData(archive, thresholds=THRESHOLDS, max_steps_per_run=limit, seed=3)
    kept, before = np.asarray(data.table), np.asarray(table)
    steps = Counter(before["run_id"].tolist())
    assert Counter(kept["run_id"].tolist()) == {run: min(n, limit) for run, n in steps.items()}
    for run, n in steps.items():
        rows, all_rows = kept[kept["run_id"] == run], before[before["run_id"] == run]
        index = rows["step_index"].astype(int)
        assert (np.diff(index) > 0).all()
        np.testing.assert_array_equal(rows["board"], all_rows["board"][index])
        if n > limit:
            # One step from each interval.
            assert all(k * n // limit <= step < (k + 1) * n // limit for k, step in enumerate(index.tolist()))
    again = CriticData(archive, thresholds=THRESHOLDS, max_steps_per_run=limit, seed=3)
    assert again.state_dict() == data.state_dict()
    other = CriticData(archive, thresholds=THRESHOLDS, max_steps_per_run=limit, seed=4)
    same = np.array_equal(np.asarray(other.table)["step_index"], kept["step_index"])
    assert same == (limit == 10_000)


def test_the_choice_of_steps_does_not_depend_on_other_runs() -> None:
    ids = np.repeat(np.array([5, 1, 9], "u4"), [100, 60, 80])
    rows = spread_rows(ids, 10, 1)
    assert Counter(ids[rows].tolist()) == {5: 10, 1: 10, 9: 10}
    alone = spread_rows(ids[160:], 10, 1)
    np.testing.assert_array_equal(rows[-10:], alone + 160)
    # Rows of two runs, interleaved.
    mixed = np.tile(np.array([4, 2], "u4"), 50)
    assert Counter(mixed[spread_rows(mixed, 5, 1)].tolist()) == {4: 5, 2: 5}
    # All positions within an interval are equally likely: chi-squared of ten positions, over 2,000 runs.
    many = np.repeat(np.arange(2000, dtype="u4"), 10)
    place = Counter((spread_rows(many, 1, 0) % 10).tolist())
    assert sum((place[k] - 200) ** 2 / 200 for k in range(10)) < 27.9  # p = 0.001
    with pytest.raises(ValueError, match="max_steps_per_run"):
        spread_rows(ids, 0, 1)


@pytest.mark.parametrize("use_embeddings", [False, True])
def test_resume_epochs_and_ranks(session: Path, use_embeddings: bool) -> None:
    def make(**options: Any) -> CriticData:
        given: dict[str, Any] = {
            "batch_size": 64,
            "thresholds": THRESHOLDS,
            "use_embeddings": use_embeddings,
            "seed": 9,
        }
        return CriticData(session, **{**given, **options}).split(0.2, seed=1)[0]

    whole = make()
    whole.set_epoch(2)
    batches = list(whole)
    assert len(batches) == len(whole) > 6
    data = make()
    data.set_epoch(2)
    for _ in islice(data, 3):
        pass
    state = json.loads(json.dumps(data.state_dict()))
    resumed = make(batch_size=32)
    resumed.load_state_dict(state)
    resumed.set_epoch(2)
    assert resumed.epoch == 2
    for k in range(2):
        expected = torch.cat([batch[k] for batch in batches[3:]])
        resumed.load_state_dict(state)
        found = torch.cat([batch[k] for batch in resumed])
        assert torch.equal(found, expected)
    ranks = [make(rank=rank, world_size=2, batch_size=32) for rank in range(2)]
    for part in ranks:
        part.set_epoch(2)
    for whole_batch, *parts in zip(batches, *ranks, strict=True):
        for k in range(2):
            merged = torch.cat([part[k] for part in parts])
            assert sorted(merged.tolist()) == sorted(whole_batch[k].tolist())
    with pytest.raises(a2store.StateMismatchError):
        make(seed=8).load_state_dict(state)


@pytest.mark.filterwarnings("ignore:.*rows are ignored:UserWarning")
def test_rejected_arguments(session: Path, archive: a2store.Archive, table: a2store.StepTable, tmp_path: Path) -> None:
    for thresholds in ((), (256, 128), (128, 128), (1, 4)):
        with pytest.raises(ValueError, match="thresholds"):
            CriticData(session, thresholds=thresholds)
    with pytest.raises(ValueError, match="symmetries"):
        CriticData(session, thresholds=THRESHOLDS, use_embeddings=True, symmetries=True)
    with pytest.raises(ValueError, match="expected a folder"):
        CriticData(archive, thresholds=THRESHOLDS, use_embeddings=True)
    with pytest.raises(ValueError, match="extra column"):
        CriticData(table)
    with pytest.raises(ValueError, match="unknown for 59 runs, such as run 1"):
        CriticData(table, highest_tile={0: 512})
    twice = archive.sql(
        "SELECT *, CAST(step_index AS INT) AS highest_tile FROM (SELECT run_id, step_index, board FROM steps)"
    )
    with pytest.raises(ValueError, match="run 0 has both"):
        CriticData(twice)
    (session / "embeddings.json").unlink()
    with pytest.warns(UserWarning, match="embeddings.json: not found; the inputs are tokens"):
        assert CriticData(session, thresholds=THRESHOLDS, use_embeddings=True).inputs == {"kind": "tokens"}
    with pytest.raises((a2store.Error, OSError)):
        CriticData(tmp_path / "none")
    whole = CriticData(session).num_runs
    formats.execute(session / "metadata.db", "DELETE FROM runs WHERE id = 1003")
    # Rows of no run do not count as steps.
    assert CriticData(session).num_runs == whole - 1


def test_embeddings_of_native_bfloat16(session: Path) -> None:
    """Other libraries store bfloat16 as two bytes without a type, and describe it by ``dtype`` alone."""
    expected = CriticData(session, 100, use_embeddings=True, shuffle=False)
    path = session / "embeddings.json"
    meta = json.loads(path.read_text())
    del meta["dtype_bits"]
    path.write_text(json.dumps(meta | {"dtype": "bfloat16"}))
    bits = np.load(session / "embeddings.bf16.npy")
    for array in (bits, bits.view("V2")):
        np.save(session / "embeddings.bf16.npy", array)
        found = CriticData(session, 100, use_embeddings=True, shuffle=False)
        assert (found.dim, found.inputs["dtype_bits"]) == (3, "bf16")
        for (inputs, _), (same, _) in zip(found, expected, strict=True):
            assert inputs.dtype == torch.bfloat16
            assert torch.equal(inputs, same)


def test_a_threshold_that_no_run_reaches(session: Path) -> None:
    with pytest.warns(UserWarning, match=r"thresholds: no run reaches \[16384, 32768\], so their labels are all 0"):
        CriticData(session, thresholds=(64, 16384, 32768))
