"""The position of loaders: the state machine that all loaders share, compared with a model in Python."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import pytest

import a2store
from a2store.torch import StepLoader
from faults.checks import LONG

Key: TypeAlias = tuple[tuple[int, int], ...]

BATCH = 150
EPOCHS = 6


@pytest.fixture(scope="module")
def query(archive: a2store.Archive) -> a2store.Query:
    return archive.sql("SELECT * FROM steps WHERE run_id < 8")


@pytest.fixture(scope="module")
def table(query: a2store.Query) -> a2store.StepTable:
    return query.materialize(progress=False)


def key(batch: Any) -> Key:
    ids, indices = batch["run_id"], batch["step_index"]
    return tuple(zip(ids.tolist(), indices.tolist(), strict=True))


class Model:
    """A model of a loader by the table of states: a phase, an epoch and a number of batches."""

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches
        self.phase, self.epoch, self.done = "ready", 0, 0
        self.iteration = 0

    def next(self) -> tuple[int, int]:
        return (self.epoch, self.done) if self.phase == "ready" else (self.epoch + 1, 0)

    def begin(self) -> tuple[int, int, int]:
        (self.epoch, self.done), self.phase = self.next(), "ready"
        self.iteration += 1
        return self.epoch, self.done, self.iteration

    def serve(self, iteration: int, done: int) -> None:
        if iteration == self.iteration:
            self.phase, self.done = "serving", done

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.done = epoch, 0
            self.iteration += 1
        elif self.phase == "serving":
            self.done = 0
        self.phase = "ready"

    def skip(self, n: int) -> None:
        is_over = self.phase == "ended" or (self.phase == "serving" and self.done == self.num_batches)
        epoch, done = self.next() if is_over else (self.epoch, self.done)
        self.load(epoch, min(done + n, self.num_batches))

    def load(self, epoch: int, done: int) -> None:
        self.epoch, self.done = epoch, done
        self.phase = "ended" if done == self.num_batches else "ready"
        self.iteration += 1


def loader_of_table(table: a2store.StepTable, query: a2store.Query, epoch: int, **options: Any) -> a2store.Loader:
    return table.loader(BATCH, seed=3, epoch=epoch, prefetch=0, **options)


def torch_loader_of_table(table: a2store.StepTable, query: a2store.Query, epoch: int, **options: Any) -> StepLoader:
    return StepLoader(table, BATCH, seed=3, epoch=epoch, prefetch=0, **options)


def torch_loader_of_query(table: a2store.StepTable, query: a2store.Query, epoch: int, **options: Any) -> StepLoader:
    return StepLoader(query, BATCH, seed=3, epoch=epoch, prefetch=0, shard=(0, 1), prefetch_share=False, **options)


def mixed_loader(table: a2store.StepTable, query: a2store.Query, epoch: int, **options: Any) -> a2store.Loader:
    return a2store.mix([(table, 1.0), (table, 2.0)], BATCH, seed=3, epoch=epoch, prefetch=0, **options)


MAKERS = [loader_of_table, mixed_loader, torch_loader_of_table, torch_loader_of_query]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_any_sequence_of_calls(
    table: a2store.StepTable, query: a2store.Query, make: Callable[..., Any], drop_last: bool
) -> None:
    def new(epoch: int = 0) -> Any:
        return make(table, query, epoch, drop_last=drop_last)

    epochs = [[key(batch) for batch in new(epoch)] for epoch in range(EPOCHS)]
    num_batches = len(epochs[0])
    assert num_batches > 4
    assert len({batches[0] for batches in epochs}) == EPOCHS
    rng = random.Random(7)
    seen: set[str] = set()
    for _ in range(25 if LONG else 12):
        loader, model = new(), Model(num_batches)
        running: list[tuple[Iterator[Any], int, int, int]] = []
        for _ in range(15):
            call = rng.choice(
                ["iterate", "iterate", "continue", "same epoch", "other epoch", "skip", "state", "pickle"]
            )
            if call == "iterate":
                if model.next()[0] >= EPOCHS:
                    break
                running.append((iter(loader), *model.begin()))
            if call in ("iterate", "continue") and running:
                place = -1 if call == "iterate" else rng.randrange(len(running))
                batches, epoch, done, iteration = running[place]
                count = rng.choice([0, 1, 3, num_batches + 1])
                found = [key(batch) for batch in islice(batches, count)]
                assert found == epochs[epoch][done : done + count]
                if count:
                    model.serve(iteration, done + len(found))
                running[place] = batches, epoch, done + len(found), iteration
                if len(found) < count:
                    # An iteration ends once.
                    running.pop(place)
            elif call == "same epoch":
                loader.set_epoch(model.epoch)
                model.set_epoch(model.epoch)
            elif call == "other epoch":
                epoch = rng.randrange(EPOCHS)
                loader.set_epoch(epoch)
                model.set_epoch(epoch)
            elif call == "skip":
                n = rng.choice([0, 1, 2, 10**6])
                loader.skip_batches(n)
                model.skip(n)
            elif call == "state":
                state = loader.state_dict()
                loader = new(rng.randrange(EPOCHS))
                loader.load_state_dict(state)
                model.load(model.epoch, model.done)
                running.clear()
            elif call == "pickle" and isinstance(loader, StepLoader):
                loader = pickle.loads(pickle.dumps(loader))
                epoch, done = model.next()
                model.load(epoch, done)
                model.phase = "ready"
                running.clear()
            seen.add(f"{call} {model.phase}")
            assert loader.epoch == model.next()[0]
            state = loader.state_dict()
            assert state["epoch"] == model.epoch
            if model.done < num_batches:
                assert state["position"] == model.done * BATCH
    # The calls met every state of the machine.
    assert {place.split()[-1] for place in seen} == {"ready", "ended", "serving"}
    assert len(seen) >= 9


@pytest.mark.parametrize("make", MAKERS)
def test_a_batch_larger_than_the_table_and_dropped(archive: a2store.Archive, make: Callable[..., Any]) -> None:
    small = archive.sql("SELECT * FROM steps WHERE run_id = 0 AND step_index < 5")
    loader = make(small.materialize(progress=False), small, 0, drop_last=True)
    for epoch in range(3):
        assert loader.epoch == epoch
        assert list(loader) == []
    assert loader.epoch == 3
