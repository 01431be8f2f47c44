"""The critic's metrics, compared with their definitions, pair by pair and row by row."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest

import a2store.critic
from a2store.critic.encoder import to_bf16
from a2store.critic.metrics import auc, brier, calibration, ece, evaluate, log_loss


def cases() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    found = []
    for rows, distinct in product([2, 3, 20, 300], [1, 2, 5, 1000]):
        # Few distinct scores, so that there are ties within and between the classes.
        probabilities = rng.integers(0, distinct + 1, rows) / distinct
        labels = rng.random(rows) < 0.2 + 0.6 * probabilities
        found.append((probabilities, labels))
    return found


def pairwise_auc(scores: Any, labels: Any) -> float | None:
    positive, negative = scores[labels], scores[~labels]
    if not len(positive) or not len(negative):
        return None
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    return float(wins / len(positive) / len(negative))


def test_auc() -> None:
    known = 0
    for scores, labels in cases():
        expected = pairwise_auc(scores, labels)
        assert auc(scores, labels) == (None if expected is None else pytest.approx(expected, abs=1e-12))
        known += expected is not None
    assert known >= 10
    assert auc([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]) == 1.0
    assert auc([0.9, 0.8, 0.2, 0.1], [0, 0, 1, 1]) == 0.0
    assert auc([3, 3, 3, 3], [0, 1, 0, 1]) == 0.5
    assert auc([1, 2], [1, 1]) is None
    assert auc([], []) is None


def test_auc_of_many_rows() -> None:
    # The product of the class sizes exceeds 32 bits, and float32 scores have ties.
    rng = np.random.default_rng(1)
    labels = np.arange(400_000) % 2 == 0
    scores = (rng.normal(size=len(labels)) + labels).astype("f4")
    found = auc(scores, labels)
    # For two normal distributions one standard deviation apart: Phi(1 / sqrt(2)).
    assert found == pytest.approx((1 + math.erf(0.5)) / 2, abs=3e-3)


def test_brier_and_log_loss() -> None:
    for probabilities, labels in cases():
        squares = [(p - y) ** 2 for p, y in zip(probabilities, labels, strict=True)]
        assert brier(probabilities, labels) == pytest.approx(sum(squares) / len(squares))
        logs = [-math.log(max(p if y else 1 - p, 1e-12)) for p, y in zip(probabilities, labels, strict=True)]
        assert log_loss(probabilities, labels) == pytest.approx(sum(logs) / len(logs))
    assert brier([], []) is None
    assert log_loss([], []) is None


@pytest.mark.parametrize("bins", [1, 3, 10])
def test_calibration(bins: int) -> None:
    for probabilities, labels in cases():
        table = calibration(probabilities, labels, bins)
        assert [part["low"] for part in table] == [k / bins for k in range(bins)]
        assert table[-1]["high"] == 1.0
        gap = 0.0
        for k, part in enumerate(table):
            rows = [
                (p, y)
                for p, y in zip(probabilities, labels, strict=True)
                if math.floor(p * bins) == k or (p == 1 and k == bins - 1)
            ]
            assert part["count"] == len(rows)
            if not rows:
                assert part["mean_probability"] is part["positive_rate"] is None
                continue
            mean, rate = (sum(values) / len(rows) for values in zip(*rows, strict=True))
            assert part["mean_probability"] == pytest.approx(mean)
            assert part["positive_rate"] == pytest.approx(rate)
            gap += abs(mean - rate) * len(rows) / len(probabilities)
        assert sum(part["count"] for part in table) == len(probabilities)
        assert ece(table) == pytest.approx(gap)
    assert ece(calibration([], [])) is None


def test_evaluate() -> None:
    rng = np.random.default_rng(2)
    probabilities = rng.random((500, 4))
    labels = rng.random((500, 4)) < probabilities
    labels[:, 2], labels[:, 3] = False, True
    is_open = rng.random((500, 4)) < 0.5
    found = evaluate(probabilities, labels, (1024, 2048, 4096, 8192), is_open=is_open)
    for k, score in enumerate(found):
        p, y, still = probabilities[:, k], labels[:, k], is_open[:, k]
        assert (score["threshold"], score["num_rows"]) == (1024 << k, 500)
        assert score["base_rate"] == y.mean()
        assert score["auc"] == auc(p, y)
        assert score["brier_base"] == pytest.approx(((y.mean() - y) ** 2).mean())
        assert score["open_rows"] == still.sum()
        assert score["open_auc"] == auc(p[still], y[still])
        assert all(value is None or math.isfinite(value) for value in score.values())  # type: ignore[arg-type]
        if k < 2:
            brier_score = ((p - y) ** 2).mean()
            assert score["skill"] == pytest.approx(1 - brier_score / ((y.mean() - y) ** 2).mean())
            rate = y[still].mean()
            open_skill = 1 - ((p[still] - y[still]) ** 2).mean() / (rate * (1 - rate))
            assert score["open_skill"] == pytest.approx(open_skill)
        else:
            assert score["auc"] is score["skill"] is score["open_auc"] is score["open_skill"] is None
    base = np.broadcast_to(labels.mean(0), labels.shape)
    assert evaluate(base, labels, (2, 4, 8, 16))[0]["skill"] == pytest.approx(0)
    assert evaluate(base, labels, (2, 4, 8, 16))[0]["open_rows"] is None
    assert evaluate(base[:0], labels[:0], (2, 4, 8, 16))[0]["brier"] is None


def from_bf16(bits: Any) -> Any:
    """Return the exact values of bfloat16 bit patterns, which are the upper bits of a float32."""
    return (bits.astype("u4") << 16).view("f4")


def test_bf16_is_the_nearest_with_ties_to_even() -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 200_000, "u4")
    # All ties and their neighbours, and the largest numbers, which round to infinity.
    upper = np.arange(2**16, dtype="u4") << 16
    bits = np.concatenate([bits, upper, upper | 0x7FFF, upper | 0x8000, upper | 0x8001, upper | 0xFFFF])
    values = bits.view("f4")
    found = to_bf16(values)
    assert (found.dtype, found.shape) == (np.dtype("<u2"), values.shape)
    numbers = ~np.isnan(values)
    assert np.isnan(from_bf16(found[~numbers])).all()
    # In float64 the number and its two candidates (the next smaller and the next larger magnitude) are exact.
    low = (bits[numbers] >> 16).astype("u4")
    exact = np.abs(values[numbers]).astype("f8")
    magnitude = low & 0x7FFF
    down = (magnitude << 16).view("f4").astype("f8")
    # The number after the largest one would be 2**128.
    up = np.where(magnitude >= 0x7F7F, 2.0**128, (np.minimum(magnitude + 1, 0x7F7F) << 16).view("f4").astype("f8"))
    with np.errstate(invalid="ignore"):
        takes_up = (up - exact < exact - down) | ((up - exact == exact - down) & (magnitude % 2 == 1))
    takes_up &= np.isfinite(exact)
    np.testing.assert_array_equal(found[numbers], low + takes_up)
    np.testing.assert_array_equal(to_bf16(from_bf16(found[numbers])), found[numbers])


def test_names_are_listed_without_an_import_of_torch() -> None:
    assert set(a2store.critic.__all__) <= set(dir(a2store.critic))
    for name in a2store.critic.__all__:
        assert getattr(a2store.critic, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        a2store.critic.nothing  # noqa: B018
    code = """
import sys, a2store.critic, a2store.critic.metrics, a2store.critic.config
import a2store.critic.embedding, a2store.critic.__main__
assert "torch" not in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)
