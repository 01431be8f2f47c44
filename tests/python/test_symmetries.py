"""Symmetries: each row is transformed by one of the board's eight symmetries, in every column with directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import a2store
import oracle
from compare import assert_same, row_keys
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


def test_the_oracle_has_the_eight_symmetries(original: Columns) -> None:
    assert len({tuple(turned(np.arange(16).reshape(4, 4), k).ravel()) for k in range(8)}) == 8
    # Sliding and turning commute, which ties moves to boards.
    for board in oracle.tokens(np.unique(original["board"])[::500]):
        for symmetry in range(8):
            new = oracle.packed(turned(board.reshape(4, 4), symmetry).ravel().tolist())
            for move in range(4):
                slid = oracle.cells(oracle.slide(oracle.packed(board.tolist()), move))
                expected = turned(np.array(slid).reshape(4, 4), symmetry).ravel().tolist()
                assert oracle.cells(oracle.slide(new, IMAGES[symmetry][move])) == expected


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


def test_all_symmetries_are_equally_likely(table: a2store.StepTable, chosen: Array, original: Columns) -> None:
    again = which(served([table.loader(1000, seed=1, epoch=1, symmetries=True)]), original)
    known = (chosen.sum(1) == 1) & (again.sum(1) == 1)
    first, second = chosen[known].argmax(1), again[known].argmax(1)
    counts = np.bincount(first, minlength=8)
    expected = len(first) / 8
    assert expected > 2_000
    # Chi-squared exceeds 40 with 7 degrees of freedom, and 130 with 63, once in a million times.
    assert ((counts - expected) ** 2 / expected).sum() < 40
    # The symmetry of a row in one epoch is independent of the next epoch and of the next row.
    for pairs in (first * 8 + second, first[1:] * 8 + first[:-1]):
        counts, expected = np.bincount(pairs, minlength=64), len(pairs) / 64
        assert ((counts - expected) ** 2 / expected).sum() < 130


@pytest.mark.parametrize(
    ("options", "world_size"),
    [
        ({"batch_size": 97}, 1),
        ({"batch_size": 4096, "prefetch": 0}, 1),
        ({"batch_size": 501, "prefetch": 5}, 3),
        ({"batch_size": 70_000}, 1),
        ({"batch_size": 1000, "shuffle": False}, 1),
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
    for name, values in symmetric.items():
        assert_same(found[name], values, name)


# Batches larger than the table, which several threads fill.
@pytest.mark.parametrize(("batch_size", "num_samples"), [(5_000, 20_000), (150_000, 300_000)])
def test_a_repeated_row_has_one_symmetry_per_epoch(
    table: a2store.StepTable, original: Columns, symmetric: Columns, batch_size: int, num_samples: int
) -> None:
    options: dict[str, Any] = {"seed": 1, "symmetries": True, "replacement": True, "num_samples": num_samples}
    drawn = served([table.loader(batch_size, **options)])
    rows = np.searchsorted(key(symmetric), key(drawn))
    assert len(rows) == num_samples
    assert len(np.unique(rows)) < 0.7 * len(rows)
    for name, values in symmetric.items():
        assert_same(drawn[name], values[rows], name)
    view = table.filter(phase="mid")
    drawn = served([view.loader(batch_size, **options)])
    once = served([view.loader(500, seed=1, symmetries=True)])
    rows = np.searchsorted(key(once), key(drawn))
    for name, values in once.items():
        assert_same(drawn[name], values[rows], name)
    rows = np.searchsorted(key(original), key(once))
    assert which(once, {name: values[rows] for name, values in original.items()}).any(1).all()


def key(columns: Columns) -> Array:
    found: Array = columns["run_id"].astype("u8") << np.uint64(32) | columns["step_index"]
    return found


@pytest.mark.parametrize("options", [{"seed": 2}, {"seed": 1, "epoch": 1}, {"seed": 1, "epoch": 2**40}])
def test_other_seeds_and_epochs(table: a2store.StepTable, symmetric: Columns, chosen: Array, options: Any) -> None:
    other = served([table.loader(1000, symmetries=True, **options)])
    assert_same(key(other), key(symmetric))
    same = (other["tokens"] == symmetric["tokens"]).all(1)[chosen.sum(1) == 1]
    # About one in eight by chance, plus boards that are their own mirror image.
    assert 0.1 < same.mean() < 0.15


def test_a_missing_move_stays_missing(archive: a2store.Archive, original: Columns) -> None:
    table = archive.sql("SELECT * EXCEPT (move) FROM steps").materialize(progress=False)
    found = served([table.loader(1000, seed=1, symmetries=True)])
    assert set(found["move"].tolist()) == {255}
    assert which(found, {**original, "move": found["move"]}).any(1).all()


def test_without_symmetries_rows_are_unchanged(table: a2store.StepTable, original: Columns) -> None:
    found = served([table.loader(1000, seed=1)])
    for name, values in original.items():
        assert_same(found[name], values, name)


def test_the_state_includes_symmetries(table: a2store.StepTable) -> None:
    loaders = [table.loader(1000, seed=1, symmetries=symmetries) for symmetries in (False, True)]
    assert [loader.state_dict()["symmetries"] for loader in loaders] == [False, True]
    for loader, other in (loaders, reversed(loaders)):
        with pytest.raises(a2store.StateMismatchError, match="symmetries"):
            loader.load_state_dict(other.state_dict())
    whole = list(loaders[1])
    resumed = table.loader(500, seed=1, symmetries=True)
    loaders[1].set_epoch(0)
    begun = iter(loaders[1])
    next(begun), next(begun)
    resumed.load_state_dict(loaders[1].state_dict())
    assert_same(np.concatenate([batch.board for batch in resumed]), np.concatenate([b.board for b in whole[2:]]))
