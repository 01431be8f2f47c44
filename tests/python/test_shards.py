"""Shares of a query's rows for several ranks: disjoint, complete, equal, and reproducible; and their loaders."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

import a2store
import games
import oracle
from a2store.torch import StepLoader
from compare import keys
from faults.checks import LONG
from object_store.proxy import Faults, Proxy
from threads import HANGS

Array: TypeAlias = npt.NDArray[Any]

GROUPS = 14
WORLDS = (1, 2, 3, 8)
ROW_BY_ROW = (
    "SELECT * FROM steps ORDER BY run_id, step_index",
    "SELECT * FROM steps WHERE move <> 1 ORDER BY run_id",
    "SELECT * FROM steps",
    "SELECT * FROM steps WHERE max_score >= 600",
    "SELECT * FROM steps WHERE move = 2",
    "SELECT * FROM steps WHERE ev_up > 0.3 AND has_evs AND run_id % 3 <> 1",
    "SELECT * FROM steps WHERE run_id >= 25 AND step_index < 11",
    "SELECT * FROM steps WHERE move > 9",
    "SELECT * FROM steps WHERE run_id = 999",
    "SELECT * FROM steps WHERE 1 = 2",
    "SELECT board, run_id, step_index FROM (SELECT * FROM steps WHERE move <> 1) AS s WHERE board > 100000",
)
WHOLE = (
    "SELECT * FROM steps WHERE run_id IN (SELECT run_id FROM runs ORDER BY run_id LIMIT 5)",
    "SELECT * FROM (SELECT * FROM steps ORDER BY run_id, step_index LIMIT 300) AS t WHERE move = 1",
    "SELECT * FROM steps WHERE board NOT IN (SELECT board FROM steps WHERE run_id < 2)",
    "SELECT board, run_id, step_index FROM (SELECT *, "
    "row_number() OVER (PARTITION BY move ORDER BY run_id, step_index) AS n FROM steps) AS t WHERE n % 7 = run_id % 7",
    "SELECT * FROM steps ORDER BY max_score DESC, board",
    "SELECT * FROM steps LIMIT 777",
    "SELECT * FROM steps WHERE move <> 3 LIMIT 300 OFFSET 55",
    "SELECT s.* FROM steps AS s JOIN runs AS r USING (run_id) WHERE r.num_steps > 40",
    "SELECT board, min(run_id) AS run_id, min(step_index) AS step_index FROM steps GROUP BY board",
    "SELECT * FROM steps WHERE run_id < 9 UNION ALL SELECT * FROM steps WHERE run_id < 4",
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """An archive of 14 commits, each a row group of games of its own engine, with 1 to 2,000 steps."""
    folder = tmp_path_factory.mktemp("shards")
    archive = a2store.Archive.create(folder / "games.a2")
    rng = random.Random(5)
    for group in range(GROUPS):
        source = folder / f"{group:02}"
        source.mkdir()
        lengths = [1] if group == 3 else [rng.randint(1, 300) for _ in range(rng.randint(1, 9))]
        for place, length in enumerate(lengths):
            engine = f"engine {(group * 5) % GROUPS:02}"
            game = games.play(rng, length, engine=engine, without_evs=0.1)
            (source / f"{place}.a2run2").write_bytes(oracle.encode_a2run2(game))
        archive.ingest(source, progress=False)
    return archive


def shares_of(query: a2store.Query, world_size: int, **options: Any) -> list[a2store.StepTable]:
    return [query.materialize(shard=(rank, world_size), progress=False, **options) for rank in range(world_size)]


def all_bytes(table: a2store.StepTable) -> Array:
    return np.frombuffer(np.asarray(table).tobytes(), f"V{table.stride}")


@pytest.mark.parametrize("sql", ROW_BY_ROW)
def test_shares_are_disjoint_complete_and_equal(archive: a2store.Archive, sql: str) -> None:
    query = archive.sql(sql)
    expected = all_bytes(query.materialize(progress=False))
    for world_size in WORLDS:
        # The round only changes where the cuts are.
        for round_ in (0, 1) if LONG or world_size == 3 else (0,):
            shares = shares_of(query, world_size, seed=3, round=round_)
            assert {share.shard.total_rows for share in shares if share.shard} == {len(expected)}
            sizes = [len(share) for share in shares]
            assert sum(sizes) == len(expected)
            assert max(sizes) - min(sizes) <= 1
            together = np.concatenate([all_bytes(share) for share in shares])
            assert np.sort(together.view("S32")).tolist() == np.sort(expected.view("S32")).tolist()
            # The rows of a share are in the order of the whole result.
            places = {row: place for place, row in enumerate(expected.tolist())}
            for share in shares:
                found = [places[row] for row in all_bytes(share).tolist()]
                assert found == sorted(found)


@pytest.mark.parametrize("sql", WHOLE)
def test_other_queries_have_no_shares(archive: a2store.Archive, sql: str) -> None:
    query = archive.sql(sql)
    for shard in ((0, 1), (1, 3)):
        with pytest.raises(ValueError, match=r"shard: expected a query that only filters and selects rows .* mmap"):
            query.materialize(shard=shard, progress=False)
    with pytest.raises(ValueError, match="shard: expected a query that only filters and selects rows"):
        list(StepLoader(query, 64, shard=(0, 2), prefetch_share=False))


def test_a_share_depends_on_seed_and_round_only(archive: a2store.Archive, tmp_path: Path) -> None:
    query = archive.sql("SELECT * FROM steps WHERE move <> 2")
    share = query.materialize(shard=(1, 3), seed=4, round=9, progress=False)
    again = a2store.open(archive.path).sql("SELECT * FROM steps WHERE move <> 2")
    in_file = again.materialize(shard=(1, 3), seed=4, round=9, path=tmp_path / "share.npy", progress=False)
    for other in (again.materialize(shard=(1, 3), seed=4, round=9, progress=False), in_file):
        assert other.fingerprint == share.fingerprint
        assert other.shard == share.shard
        assert np.asarray(other).tobytes() == np.asarray(share).tobytes()
    others = [
        query.materialize(shard=shard, seed=seed, round=round_, progress=False)
        for shard, seed, round_ in (((1, 3), 4, 8), ((1, 3), 5, 9), ((0, 3), 4, 9), ((1, 4), 4, 9))
    ]
    assert len({share.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert all(np.asarray(other).tobytes() != np.asarray(share).tobytes() for other in others)
    assert share.fingerprint != query.materialize(progress=False).fingerprint


def test_rounds_mix_the_row_groups(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT * FROM steps")
    ranks = np.zeros((12, len(query.materialize(progress=False))), "u1")
    all_keys = np.sort(keys(np.asarray(query.materialize(progress=False))))
    for round_, of_round in enumerate(ranks):
        for rank, share in enumerate(shares_of(query, 4, round=round_)):
            of_round[np.searchsorted(all_keys, keys(np.asarray(share)))] = rank
    # Each row is on several ranks in twelve rounds.
    assert min(len(set(column)) for column in ranks.T.tolist()) >= 2


def test_what_a_share_knows(archive: a2store.Archive, tmp_path: Path) -> None:
    query = archive.sql("SELECT * FROM steps")
    whole = query.materialize(progress=False)
    share = query.materialize(shard=(int(np.int64(2)), 5), seed=7, round=2**64 - 1, progress=False)
    assert whole.shard is None
    shard = share.shard
    assert shard is not None
    assert (shard.rank, shard.world_size, shard.seed, shard.round) == (2, 5, 7, 2**64 - 1)
    assert shard.total_rows == len(whole)
    assert repr(shard) == f"Shard(rank=2, world_size=5, seed=7, round={2**64 - 1}, total_rows={len(whole)})"
    assert share.filter(min_score=1).shard is None
    share.save(tmp_path / "share.npy", progress=False)
    assert a2store.StepTable.load(tmp_path / "share.npy", progress=False).shard is None


def test_codes_of_strings_are_the_same_in_all_shares(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT *, CASE WHEN move = 2 THEN NULL ELSE phase END AS word FROM steps WHERE move <> 1")
    whole = query.materialize(extra=["engine", "word"], progress=False)
    assert len(whole.categories["engine"]) > GROUPS // 2
    sql = "SELECT run_id, engine FROM runs ORDER BY run_id"
    engines = dict(zip(*archive.sql(sql).to_numpy().values(), strict=True))
    for round_ in range(3 if LONG else 2):
        for share in shares_of(query, 5, extra=["engine", "word"], round=round_):
            assert share.categories == whole.categories
            rows = np.asarray(share)
            assert [whole.categories["engine"][code] for code in rows["engine"]] == [
                engines[run_id] for run_id in rows["run_id"]
            ]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shard": (2, 2)}, ValueError, r"shard: rank: expected 0\.\.=1, found 2"),
        ({"shard": (0, 0)}, ValueError, r"shard: world_size: expected 1\.\.=16777216, found 0"),
        ({"shard": (0.0, 2)}, TypeError, "shard: rank: expected an int, found float"),
        ({"shard": 1}, TypeError, "shard: expected a rank and a world size, found 1"),
        ({"shard": (0, 1), "seed": 2**64}, ValueError, "seed: expected"),
    ],
)
def test_wrong_shares(
    archive: a2store.Archive, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        archive.sql("SELECT * FROM steps").materialize(**arguments)


@pytest.mark.parametrize("options", [{"seed": 1}, {"round": 2}])
def test_a_seed_or_round_without_a_shard(archive: a2store.Archive, options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}: expected 0 without a shard, found {value}"):
        archive.sql(SQL).materialize(**options, progress=False)


def test_shares_of_a_users_file(archive: a2store.Archive, tmp_path: Path) -> None:
    table = pa.table(archive.sql("SELECT board, move, run_id, step_index FROM steps"))
    pq.write_table(table, tmp_path / "u.parquet", row_group_size=100)
    query = archive.sql("SELECT * FROM u", tables={"u": tmp_path / "u.parquet"})
    expected = all_bytes(query.materialize(progress=False)).tolist()
    assert len(expected) == len(table)
    # The order is that of the file, each time.
    for _ in range(3):
        assert all_bytes(query.materialize(progress=False)).tolist() == expected
        assert pa.table(query).to_pydict() == table.to_pydict()
    for world_size in (1, 3, 6):
        together = [row for share in shares_of(query, world_size) for row in all_bytes(share).tolist()]
        assert sorted(together) == sorted(expected)


def test_random_rows_have_no_shares(archive: a2store.Archive) -> None:
    with pytest.raises(ValueError, match="shard: expected a query without random numbers or the time"):
        archive.sql("SELECT * FROM steps WHERE random() < 0.5").materialize(shard=(0, 2), progress=False)


def test_a_share_that_does_not_fit(archive: a2store.Archive) -> None:
    query = archive.sql("SELECT * FROM steps WHERE move <> 2")
    share = query.materialize(shard=(0, 3), progress=False)
    query.materialize(shard=(0, 3), memory_limit=share.nbytes, progress=False)
    with pytest.raises(a2store.MemoryLimitError):
        query.materialize(shard=(0, 3), memory_limit=share.nbytes - 32, progress=False)


# Loaders


def rows_of(batches: list[dict[str, torch.Tensor]]) -> list[tuple[int, int]]:
    return [
        pair for batch in batches for pair in zip(batch["run_id"].tolist(), batch["step_index"].tolist(), strict=True)
    ]


def loaders(query: a2store.Query, world_size: int, batch_size: int = 64, **options: Any) -> list[StepLoader]:
    return [StepLoader(query, batch_size, shard=(rank, world_size), seed=2, **options) for rank in range(world_size)]


SQL = "SELECT * FROM steps WHERE move <> 2"


@pytest.mark.parametrize("world_size", WORLDS)
def test_an_epoch_of_shares_has_each_row_once(archive: a2store.Archive, world_size: int) -> None:
    query = archive.sql(SQL)
    expected = sorted(rows_of(list(StepLoader(query.materialize(progress=False)))))
    orders = []
    ranks = loaders(query, world_size)
    for _ in range(3):
        served = [list(loader) for loader in ranks]
        assert len({len(batches) for batches in served} | {len(loader) for loader in ranks}) == 1
        orders.append([rows_of(batches) for batches in served])
        assert sorted(row for rows in orders[-1] for row in rows) == expected
        assert all(rows != sorted(rows) for rows in orders[-1])
    assert orders[0] != orders[1] != orders[2]
    if world_size > 1:
        assert set(orders[0][0]) != set(orders[1][0])
    assert [loader.epoch for loader in ranks] == [3] * world_size


def test_ranks_take_the_same_number_of_steps(archive: a2store.Archive) -> None:
    few = archive.sql("SELECT run_id, step_index FROM steps LIMIT 7").to_numpy()
    pairs = zip(few["run_id"].tolist(), few["step_index"].tolist(), strict=True)
    condition = " OR ".join(f"(run_id = {run_id} AND step_index = {step_index})" for run_id, step_index in pairs)
    query = archive.sql(f"SELECT * FROM steps WHERE {condition}")
    for batch_size, world_size, num_batches in ((1, 3, 3), (2, 3, 2), (3, 3, 1), (1, 8, 1), (4, 2, 1)):
        ranks = loaders(query, world_size, batch_size, prefetch_share=False)
        served = [list(loader) for loader in ranks]
        assert [len(batches) for batches in served] == [num_batches] * world_size
        assert sum(len(batch["move"]) for batches in served for batch in batches) == 7
        shapes = {
            (name, tensor.dtype, tensor.shape[1:]) for loader in served for b in loader for name, tensor in b.items()
        }
        assert len(shapes) == len(served[0][0])
    ranks = loaders(query, 3, 1, drop_last=True)
    assert [len(list(loader)) for loader in ranks] == [2, 2, 2] == [len(loader) for loader in ranks]
    empty = loaders(archive.sql("SELECT * FROM steps WHERE move > 9"), 2)
    assert [list(loader) for loader in empty] == [[], []]


def test_a_loader_of_shares_passes_the_options_on(archive: a2store.Archive) -> None:
    def transform(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return batch | {"twice": batch["move"] * 2}

    query = archive.sql("SELECT * FROM steps WHERE run_id = 0 AND step_index < 5")
    for loader in loaders(
        query, 3, 2, tokens="int32", columns=["tokens", "move", "max_score"], transform=transform,
        materialize={"extra": "max_score"}, shuffle=False,
    ):  # fmt: skip
        for batch in loader:
            assert list(batch) == ["tokens", "move", "max_score", "twice"]
            assert (batch["tokens"].dtype, batch["tokens"].shape[1:]) == (torch.int32, (16,))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0, "world_size": 1}, ValueError, "rank and world_size: expected none for a query"),
        ({"replacement": True}, ValueError, "replacement: expected the default for a query"),
        ({"shard": (3, 3)}, ValueError, r"shard: rank: expected 0\.\.=2, found 3"),
        ({"materialize": {"shard": (0, 1)}}, ValueError, "materialize: expected no shard"),
        ({"transform": 3}, TypeError, "transform: expected a function"),
        ({"drop_last": 1}, TypeError, "'int' object is not an instance of 'bool'"),
        ({"columns": ""}, ValueError, "columns: expected tokens, move"),
    ],
)
def test_wrong_options(archive: a2store.Archive, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StepLoader(archive.sql(SQL), **options)


def test_states_in_the_middle_of_an_epoch(archive: a2store.Archive) -> None:
    query = archive.sql(SQL)
    for stop in (1, 3, 7):
        ranks = loaders(query, 2, 50, prefetch_share=False)
        list(ranks[0]), list(ranks[1])
        begun = [iter(loader) for loader in ranks]
        first = [[next(batches) for _ in range(stop)] for batches in begun]
        states = [loader.state_dict() for loader in ranks]
        # A checkpoint of one rank serves all ranks.
        assert states[0] == states[1]
        assert (states[0]["epoch"], states[0]["position"]) == (1, 100 * stop)
        rest = [rows_of(list(batches)) for batches in begun]
        again = loaders(query, 2, 50, prefetch_share=False)
        for rank, loader in enumerate(again):
            loader.load_state_dict(states[0])
            loader.set_epoch(1)
            assert rows_of(list(loader)) == rest[rank]
            assert loader.epoch == 2
        assert len(rows_of(first[0])) == 50 * stop
        for world_size, batch_size in ((3, 50), (2, 51)):
            (other, *_) = loaders(query, world_size, batch_size)
            with pytest.raises(a2store.StateMismatchError, match="loader state does not match"):
                other.load_state_dict(states[0])


def test_states_at_the_end_of_an_epoch_fit_other_topologies(archive: a2store.Archive) -> None:
    query = archive.sql(SQL)
    (first, *_) = loaders(query, 2, 50, shuffle=np.True_, symmetries=np.False_, window=np.int64(512))
    list(first)
    state = json.dumps(first.state_dict())
    for world_size, batch_size in ((2, 50), (3, 50), (1, 999), (8, 7)):
        continued = loaders(query, world_size, batch_size, prefetch_share=False)
        fresh = loaders(query, world_size, batch_size, epoch=1, prefetch_share=False)
        for one, other in zip(continued, fresh, strict=True):
            one.load_state_dict(json.loads(state))
            assert one.epoch == 1
            assert rows_of(list(one)) == rows_of(list(other))


def test_states_of_other_rows(archive: a2store.Archive) -> None:
    state = loaders(archive.sql(SQL), 2)[0].state_dict()
    others = [
        StepLoader(archive.sql(SQL), 64, shard=(0, 2), seed=3),
        StepLoader(archive.sql(SQL), 64, shard=(0, 2), seed=2, symmetries=True),
        StepLoader(archive.sql("SELECT * FROM steps"), 64, shard=(0, 2), seed=2),
    ]
    for other in others:
        with pytest.raises(a2store.StateMismatchError):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="state: expected the state of a loader of a query"):
        others[0].load_state_dict(archive.sql(SQL).materialize(progress=False).loader().state_dict())


class Other:
    """A query with another ``materialize``."""

    def __init__(self, query: a2store.Query, materialize: Callable[..., a2store.StepTable]) -> None:
        self.query, self.materialize = query, materialize

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)


def test_a_loader_makes_each_share_once(archive: a2store.Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = archive.sql(SQL)
    made: list[int] = []

    def counted(**options: Any) -> a2store.StepTable:
        made.append(options["round"])
        return query.materialize(**options)

    (loader, *_) = loaders(query, 2, prefetch_share=False)
    monkeypatch.setattr(loader._loader, "_query", Other(query, counted))
    for _ in range(2):
        for _ in loader:
            assert len(loader) == len(loader)
            loader.state_dict()
    assert made == [0, 1]


def test_forged_states(archive: a2store.Archive) -> None:
    (loader, other) = loaders(archive.sql(SQL), 2)
    next(iter(loader))
    state = loader.state_dict()
    mismatch = a2store.StateMismatchError
    changes: list[tuple[dict[str, int], type[Exception]]] = [
        ({"position": 10**6}, mismatch),
        ({"position": 65}, mismatch),
        ({"batch_size": 0}, ValueError),
        ({"version": 99}, mismatch),
    ]
    for change, error in changes:
        with pytest.raises(error):
            other.load_state_dict(state | change)
    (elsewhere, *_) = loaders(archive.sql(SQL + " AND move <> 1"), 2)
    with pytest.raises(mismatch, match="query"):
        elsewhere.load_state_dict(state)


def test_a_forked_child_makes_its_own_share(archive: a2store.Archive) -> None:
    (loader, *_) = loaders(archive.sql(SQL), 1)
    for _ in loader:
        pass
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(len(rows_of(list(loader)))).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert int(pipe.read()) == len(archive.sql(SQL).materialize(progress=False))
    os.waitpid(child, 0)


def test_a_share_that_failed_ahead_is_made_again(archive: a2store.Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = archive.sql(SQL)
    failing = {1}

    def unreachable(**options: Any) -> a2store.StepTable:
        if options["round"] in failing:
            raise OSError("the store does not answer")
        return query.materialize(**options)

    (loader, *_) = loaders(query, 2)
    expected = [rows_of(list(loader)) for _ in range(3)]
    (loader, *_) = loaders(query, 2)
    monkeypatch.setattr(loader._loader, "_query", Other(query, unreachable))
    assert rows_of(list(loader)) == expected[0]
    for _ in range(2):
        with pytest.raises(OSError, match="does not answer"):
            iter(loader)
    failing.clear()
    assert [rows_of(list(loader)) for _ in range(2)] == expected[1:]


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], a2store.Archive]:
    """Return a function that makes an archive of a number of row groups, with 3,600 steps in all."""
    rng = random.Random(11)

    def make(num_groups: int) -> a2store.Archive:
        folder = tmp_path_factory.mktemp(f"groups-{num_groups}")
        archive = a2store.Archive.create(folder / "games.a2")
        for group in range(num_groups):
            game = games.play(rng, 3600 // num_groups)
            (folder / f"{group}.a2run2").write_bytes(oracle.encode_a2run2(game))
            archive.ingest(folder / f"{group}.a2run2", progress=False)
        return archive

    return make


@pytest.mark.parametrize("num_groups", [1, 9, 60])
def test_ranks_shuffle_independently(grouped: Callable[[int], a2store.Archive], num_groups: int) -> None:
    """Two rows at any distance are in one step as often as in a shuffle of all rows."""
    query = grouped(num_groups).sql("SELECT * FROM steps")
    places = {
        row: place for place, row in enumerate(sorted(rows_of(list(StepLoader(query.materialize(progress=False))))))
    }
    num_rows, num_epochs = len(places), 20
    ranks = loaders(query, 2, 30, prefetch_share=False)
    step_of = np.empty((num_epochs, num_rows), int)
    rank_of = np.empty((num_epochs, num_rows), int)
    for epoch in range(num_epochs):
        for rank, loader in enumerate(ranks):
            for step, batch in enumerate(loader):
                found = [places[row] for row in rows_of([batch])]
                step_of[epoch, found], rank_of[epoch, found] = step, rank
    expected = 59 / (num_rows - 1)
    distances = [1, 2, 7, num_rows // 4, num_rows // 2 - 1, num_rows // 2, num_rows // 2 + 1]
    for distance in distances:
        together = (step_of == np.roll(step_of, distance, axis=1)).mean()
        # The bound is six standard errors of `step_of.size` independent pairs.
        assert abs(together - expected) < 6 * (expected / step_of.size) ** 0.5, distance
    # Each row changes its rank from round to round.
    share_of_rank_1 = rank_of.mean(axis=0)
    assert share_of_rank_1.min() >= 0.05
    assert share_of_rank_1.max() <= 0.95


def share_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "a2store-share"]


def test_the_next_share_is_made_ahead(archive: a2store.Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = archive.sql(SQL)
    (loader, *_) = loaders(query, 2)
    batches = iter(loader)
    assert share_threads() == []
    next(batches)
    for thread in share_threads():
        thread.join(HANGS)
    # The epoch that was not asked for is dropped.
    loader.set_epoch(7)
    fresh = loaders(query, 2, epoch=7)[0]
    assert rows_of(list(loader)) == rows_of(list(fresh))
    without = loaders(query, 2, prefetch_share=False)[0]
    for thread in share_threads():
        thread.join(HANGS)
    for _ in zip(range(3), without, strict=False):
        assert share_threads() == []


def test_an_abandoned_loader_ends_its_thread(archive: a2store.Archive) -> None:
    (loader, *_) = loaders(archive.sql(SQL), 2)
    next(iter(loader))
    del loader
    gc.collect()
    for thread in share_threads():
        thread.join(HANGS)
        assert not thread.is_alive()


def test_shares_that_do_not_fit_beside_each_other(archive: a2store.Archive) -> None:
    query = archive.sql(SQL)
    most = max(share.nbytes for share in shares_of(query, 2))
    (loader, *_) = loaders(query, 2, materialize={"memory_limit": most})
    assert len(rows_of(list(loader))) + len(rows_of(list(loader))) >= 2 * (most // 32 - 1)
    (loader, *_) = loaders(query, 2, materialize={"memory_limit": 64})
    with pytest.raises(a2store.MemoryLimitError):
        iter(loader)


def test_workers_of_a_data_loader_need_a_table(archive: a2store.Archive) -> None:
    loader: DataLoader[Any] = DataLoader(
        loaders(archive.sql(SQL), 1)[0], batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(ValueError, match="expected a table in a worker of a DataLoader, found a query"):
        next(iter(loader))


# Object stores


def test_a_rank_reads_its_share_only(url: str, through: Callable[[Faults], Proxy], tmp_path: Path) -> None:
    archive = a2store.Archive.create(url)
    for seed in range(16):
        a2store.simulate(tmp_path / str(seed), runs=60, depth=0, seed=seed, progress=False)
        archive.ingest(tmp_path / str(seed), progress=False)
    assert len(archive.files("steps")) == 16
    # The footers of all files and their lengths, and the pages of `runs`.
    other = 16 * (8 << 10)
    proxy = through(lambda _: None)

    def read_bytes(sql: str, shard: tuple[int, int]) -> int:
        # A new archive has no footers in its cache.
        query = a2store.open(url).sql(sql)
        proxy.sent.clear()
        query.materialize(shard=shard, columns=["board", "move"], progress=False)
        return sum(count for path, count in proxy.sent.items() if "/steps/" in path)

    whole = read_bytes("SELECT * FROM steps", (0, 1))
    for world_size in (2, 4):
        shares = [read_bytes("SELECT * FROM steps", (rank, world_size)) for rank in range(world_size)]
        # A row group that a cut divides is read by two ranks.
        assert all(share <= whole / world_size + whole / 4 + other for share in shares)
        assert sum(shares) <= whole + (world_size - 1) * (whole / 5 + other)
    # A condition on runs needs no count.
    best = "SELECT * FROM steps WHERE run_id < 60"
    assert read_bytes(best, (0, 2)) + read_bytes(best, (1, 2)) <= 2 * (whole / 6 + other)
