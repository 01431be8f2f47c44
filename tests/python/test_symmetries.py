"""Symmetries: each row is transformed by one of the board's eight symmetries, in every column with directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import a2store
import oracle
from compare import assert_same, keys, row_keys
from oracle import Array

EXTRAS = ["max_score", "ev_left", "engine"]
Columns = dict[str, Array]


def turned(grids: Array, symmetry: int) -> Array:
    """Transform square grids in the last two axes: an optional flip, then quarter turns."""
    flipped = grids[..., ::-1] if symmetry >= 4 else grids
    return np.rot90(flipped, symmetry % 4, axes=(-2, -1))


# The side of the board to which each move slides. A symmetry maps the move as it maps the side.
SIDES = np.zeros((4, 4, 4), bool)
SIDES[0, 0, :] = SIDES[1, 3, :] = SIDES[2, :, 0] = SIDES[3, :, 3] = True
IMAGES = [[int(np.flatnonzero((turned(side, k) == SIDES).all((1, 2)))[0]) for side in SIDES] for k in range(8)]


def image(columns: Columns, symmetry: int) -> Columns:
    """Return the columns of a batch under one symmetry, by the definition."""
    tokens = turned(columns["tokens"].reshape(-1, 4, 4), symmetry).reshape(-1, 16)
    moves = np.array([*IMAGES[symmetry], *[255] * 252], "u1")
    # The value of a direction moves to the image of that direction.
    source = np.argsort(IMAGES[symmetry])
    return {
        "tokens": tokens,
        "move": moves[columns["move"]],
        "ev_values": columns["ev_values"][:, source].view("u4"),
        "ev_legal": columns["ev_legal"][:, source],
    }


def which(found: Columns, original: Columns) -> Array:
    """Return, for each row and symmetry, whether the symmetry explains all columns."""

    def same(symmetry: int) -> Array:
        expected = image(original, symmetry)
        bits = {**found, "ev_values": found["ev_values"].view("u4")}
        equal = [(bits[name] == values).reshape(len(values), -1).all(1) for name, values in expected.items()]
        explained: Array = np.all(equal, axis=0)
        return explained

    return np.stack([same(symmetry) for symmetry in range(8)], axis=1)


def served(loaders: list[a2store.Loader]) -> Columns:
    """Return the rows of all ranks, in the order of the table."""
    batches = [batch for loader in loaders for batch in loader]
    order = np.argsort(row_keys(batches), kind="stable")
    names = batches[0].keys()
    return {name: np.concatenate([batch[name] for batch in batches])[order] for name in names}


@pytest.fixture(scope="module")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(extra=EXTRAS, progress=False)


@pytest.fixture(scope="module")
def original(table: a2store.StepTable) -> Columns:
    return table.take(np.arange(len(table))).to_dict()


@pytest.fixture(scope="module")
def symmetric(table: a2store.StepTable) -> Columns:
    return served([table.loader(1000, seed=1, symmetries=True)])


@pytest.fixture(scope="module")
def chosen(symmetric: Columns, original: Columns) -> Array:
    return which(symmetric, original)


def test_every_row_is_transformed_by_one_symmetry(symmetric: Columns, original: Columns, chosen: Array) -> None:
    assert chosen.any(1).all()
    # Several symmetries explain a row only if the row is the same under them.
    unchanged = which({name: original[name] for name in ("tokens", "move", "ev_values", "ev_legal")}, original)
    assert_same(chosen.sum(1), unchanged.sum(1))
    assert (chosen.sum(1) == 1).mean() > 0.9
    assert_same(oracle.tokens(symmetric["board"]), symmetric["tokens"])
    for name in ("run_id", "step_index", *EXTRAS):
        assert_same(symmetric[name], original[name], name)
    masks = [oracle.legal_mask(board) for board in symmetric["board"][::50].tolist()]
    assert_same(symmetric["ev_legal"][::50], oracle.mask_bits(np.array(masks, "u1")))


@pytest.mark.parametrize(
    ("options", "world_size"),
    [
        ({"batch_size": 4096, "prefetch": 0, "tokens": "int64"}, 1),
        ({"batch_size": 501, "prefetch": 5}, 3),
        ({"batch_size": 97, "columns": ["move", "run_id", "step_index"]}, 1),
        ({"batch_size": 1000, "shuffle": False}, 2),
        ({"batch_size": 1000, "window": 2000}, 1),
    ],
)
def test_seed_epoch_and_row_determine_the_symmetry(
    table: a2store.StepTable, symmetric: Columns, options: Any, world_size: int
) -> None:
    ranks = range(world_size)
    loaders = [table.loader(seed=1, symmetries=True, rank=rank, world_size=world_size, **options) for rank in ranks]
    found = served(loaders)
    for name, values in found.items():
        assert_same(values, symmetric[name].astype(values.dtype), name)
    other = served([table.loader(1000, symmetries=True, seed=2)])
    # About one in eight by chance, and boards that are their own mirror image.
    assert (other["tokens"] == symmetric["tokens"]).all(1).mean() < 0.2


# Batches larger than the table, which several threads fill.
@pytest.mark.parametrize(("batch_size", "num_samples"), [(5_000, 20_000), (150_000, 300_000)])
def test_a_repeated_row_has_one_symmetry_per_epoch(
    table: a2store.StepTable, original: Columns, symmetric: Columns, batch_size: int, num_samples: int
) -> None:
    options: dict[str, Any] = {"seed": 1, "symmetries": True, "replacement": True, "num_samples": num_samples}
    drawn = served([table.loader(batch_size, **options)])
    rows = np.searchsorted(keys(symmetric), keys(drawn))
    assert len(rows) == num_samples
    assert len(np.unique(rows)) < 0.7 * len(rows)
    for name, values in symmetric.items():
        assert_same(drawn[name], values[rows], name)
    view = table.filter(phase="mid")
    drawn = served([view.loader(batch_size, **options)])
    once = served([view.loader(500, seed=1, symmetries=True)])
    rows = np.searchsorted(keys(once), keys(drawn))
    for name, values in once.items():
        assert_same(drawn[name], values[rows], name)
    rows = np.searchsorted(keys(original), keys(once))
    assert which(once, {name: values[rows] for name, values in original.items()}).any(1).all()


def test_a_missing_move_stays_missing(archive: a2store.Archive, original: Columns) -> None:
    table = archive.sql("SELECT * EXCEPT (move) FROM steps").materialize(progress=False)
    found = served([table.loader(1000, seed=1, symmetries=True)])
    assert set(found["move"].tolist()) == {255}
    assert which(found, {**original, "move": found["move"]}).any(1).all()
