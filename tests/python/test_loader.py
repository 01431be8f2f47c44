"""Loaders: every row once per epoch, with any number of ranks, in the order of the epoch."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

import a2store
import oracle
from compare import assert_same, row_keys
from oracle import Array


def test_batches_hold_the_tables_values(table: a2store.StepTable, all_keys: Array) -> None:
    rows = np.asarray(table)
    for batch in table.loader(3000, seed=5):
        expected = rows[np.searchsorted(all_keys, row_keys([batch]))]
        for name in ("board", "move", "ev_values", "run_id", "step_index"):
            assert_same(batch[name], expected[name], name)
        assert_same(batch.tokens, oracle.tokens(expected["board"]))
        assert_same(batch.ev_legal, oracle.mask_bits(expected["ev_legal"]))


@pytest.mark.parametrize(
    "columns", [["tokens"], ["ev_legal", "move"], ["board", "run_id", "step_index", "ev_values", "tokens"], []]
)
def test_columns(table: a2store.StepTable, columns: list[str]) -> None:
    full = list(table.loader(4096, seed=2))
    some = list(table.loader(4096, seed=2, columns=columns))
    assert len(full) == len(some)
    for all_columns, batch in zip(full, some, strict=True):
        assert (batch.keys(), len(batch)) == (columns, len(all_columns))
        for name in columns:
            assert_same(batch[name], all_columns[name], name)
        for name in set(all_columns.keys()) - set(columns):
            assert name not in batch


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_batches_that_are_kept_are_never_overwritten(table: a2store.StepTable, all_keys: Array, prefetch: int) -> None:
    batches = list(table.loader(500, seed=7, prefetch=prefetch))
    copies = [{name: values.copy() for name, values in batch.to_dict().items()} for batch in batches]
    # Later epochs and loaders reuse only free memory.
    arrays = [batch.board for batch in batches]
    records = [pa.record_batch(batch) for batch in batches[:10]]
    for epoch in range(3):
        row_keys(table.loader(500, seed=8, epoch=epoch, prefetch=prefetch))
    assert_same(np.sort(row_keys(batches)), all_keys)
    for batch, copy in zip(batches, copies, strict=True):
        for name, values in copy.items():
            assert_same(batch[name], values, name)
    del batches, batch
    gc.collect()
    for array, copy in zip(arrays, copies, strict=True):
        assert_same(array, copy["board"])
    for record, copy in zip(records, copies, strict=False):
        assert_same(record["board"].to_numpy(), copy["board"])


def test_an_array_alone_keeps_its_memory(table: a2store.StepTable) -> None:
    kept, copies = [], []
    for batch in table.loader(500, seed=9, prefetch=2):
        kept.append(batch.ev_values[10:20])
        copies.append(kept[-1].copy())
        del batch
    for view, copy in zip(kept, copies, strict=True):
        assert_same(view, copy)
