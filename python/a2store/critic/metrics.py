"""Metrics of probabilities: AUC, Brier score, calibration. They need only NumPy.

An undefined number is ``None``, never NaN; an example is the AUC if all labels are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from .._integers import integer


class Bin(TypedDict):
    """A bin of the calibration: the rows whose probability is in one range."""

    low: float
    """The range is ``low..high``; the last one includes 1."""
    high: float
    count: int
    mean_probability: float | None
    """The mean over the rows of the bin; ``None`` if it has no rows."""
    positive_rate: float | None


class Scores(TypedDict):
    """The scores of one threshold, as ``evaluate`` returns them."""

    threshold: int
    num_rows: int
    base_rate: float | None
    auc: float | None
    brier: float | None
    brier_base: float | None
    skill: float | None
    log_loss: float | None
    ece: float | None
    open_rows: int | None
    """The rows whose board is below the threshold. All four ``open_…`` fields are ``None`` if the boards are
    unknown."""
    open_base_rate: float | None
    open_auc: float | None
    open_skill: float | None


def auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """Return the area under the ROC curve, the probability that a positive row outscores a negative one.

    A tie counts half. AUC = (R - P (P + 1) / 2) / (P N), where R is the sum of the ranks of the P positive rows among
    all P + N rows. Ties have their mean rank (Mann and Whitney 1947; Hanley and McNeil 1982). The result is ``None`` if
    P or N is 0.

    - ``scores``: the score of each row: (N,), any number type.
    - ``labels``: whether each row is positive: (N,), bool or 0 and 1.

    >>> from a2store.critic import auc
    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    values, positive = np.asarray(scores), np.asarray(labels, bool)
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if not num_positive or not num_negative:
        return None
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    above = ranks[place][positive].sum() - num_positive * (num_positive + 1) / 2
    return float(above / num_positive / num_negative)


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """Return the mean squared difference of probability and outcome (Brier 1950); ``None`` without rows.

    - ``probabilities``: the probability that each row is positive: (N,), in [0, 1].
    - ``labels``: whether each row is positive: (N,), bool or 0 and 1.

    >>> from a2store.critic import brier
    >>> brier([0.0, 0.5], [0, 1])
    0.125
    """
    values = np.asarray(probabilities, np.float64)
    return float(np.mean((values - np.asarray(labels, np.float64)) ** 2)) if len(values) else None


def log_loss(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """Return the mean of -log of the outcome's probability, in nats; probabilities are at least 1e-12."""
    values = np.asarray(probabilities, np.float64)
    if not len(values):
        return None
    of_outcome = np.where(np.asarray(labels, bool), values, 1 - values)
    return float(-np.log(np.maximum(of_outcome, 1e-12)).mean())


def calibration(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 10) -> list[Bin]:
    """Return the mean probability and the rate of positive rows in bins of equal width, in ascending order.

    A bin is a dict: ``low`` and ``high``, the range of the bin, which excludes ``high`` except in the last bin;
    ``count``, the number of rows; ``mean_probability`` and ``positive_rate``, floats, ``None`` without rows.

    - ``probabilities``: the probability that each row is positive: (N,), in [0, 1].
    - ``labels``: whether each row is positive: (N,), bool or 0 and 1.
    - ``bins``: the number of bins.

    >>> from a2store.critic import calibration
    >>> calibration([0.1, 0.3, 0.9], [0, 1, 1], bins=2)[0]
    {'low': 0.0, 'high': 0.5, 'count': 2, 'mean_probability': 0.2, 'positive_rate': 0.5}
    """
    bins = integer("bins", bins, 1, 2**31)
    values, positive = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    place = np.minimum((values * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = np.bincount(place, values, bins), np.bincount(place, positive, bins)

    def mean(total: float, count: int) -> float | None:
        return float(total / count) if count else None

    return [
        Bin(
            low=k / bins,
            high=(k + 1) / bins,
            count=int(counts[k]),
            mean_probability=mean(sums[0][k], counts[k]),
            positive_rate=mean(sums[1][k], counts[k]),
        )
        for k in range(bins)
    ]


def ece(table: Sequence[Bin]) -> float | None:
    """Return the expected calibration error: the mean over rows of |mean probability - positive rate| in their bin.

    Naeini, Cooper and Hauskrecht 2015 define it. The result is ``None`` without rows.
    """
    rows = sum(part["count"] for part in table)
    gaps = (
        part["count"] * abs(part["mean_probability"] - part["positive_rate"])
        for part in table
        if part["mean_probability"] is not None and part["positive_rate"] is not None
    )
    return float(sum(gaps) / rows) if rows else None


def evaluate(
    probabilities: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    thresholds: Sequence[int],
    bins: int = 10,
    is_open: npt.NDArray[np.bool_] | None = None,
) -> list[Scores]:
    """Return the scores of each threshold for probabilities and labels (N, T), compared with a constant prediction.

    The constant is the base rate p of the same rows, which is known only in hindsight. Its AUC is 0.5, and its Brier
    score ``brier_base`` is p (1 - p). ``skill`` = 1 - brier / brier_base is 1 for an oracle and 0 for the constant. If
    all rows or no rows are positive, AUC and skill are ``None``.

    A board at or above the threshold reveals its label. ``is_open`` (N, T) marks the rows below the threshold. The
    scores ``open_…`` cover only these rows, compared with the base rate among them.

    - ``probabilities``: the probability of each threshold: (N, T), floats in [0, 1].
    - ``labels``: whether the row's run reached each threshold: (N, T), bool or 0 and 1.
    - ``thresholds``: the T tiles.
    - ``bins``: the number of bins of the calibration, from which ``ece`` is computed.
    - ``is_open``: the rows whose board is below the threshold: (N, T), bool; ``None`` = unknown.

    Returns a dict per threshold: ``threshold`` and ``num_rows``, ints; ``base_rate``, ``auc``, ``brier``,
    ``brier_base``, ``skill``, ``log_loss`` and ``ece``, floats or ``None``; ``open_rows``, int, ``open_base_rate``,
    ``open_auc`` and ``open_skill``, floats, all ``None`` without ``is_open``.

    >>> from a2store.critic import evaluate
    >>> probabilities = np.array([[0.1], [0.4], [0.35], [0.8]])
    >>> scores = evaluate(probabilities, np.array([[0], [0], [1], [1]]), [2048])
    >>> scores[0]["auc"], scores[0]["base_rate"]
    (0.75, 0.5)
    """
    result = []
    for column, threshold in enumerate(thresholds):
        values, positive = probabilities[:, column].astype(np.float64), labels[:, column] > 0.5
        rate, score, base, skill = _against_base(values, positive)
        still = None if is_open is None else is_open[:, column]
        open_values, open_labels = (values[:0], positive[:0]) if still is None else (values[still], positive[still])
        open_rate, _, _, open_skill = _against_base(open_values, open_labels)
        result.append(
            Scores(
                threshold=integer("thresholds", threshold, 0),
                num_rows=len(positive),
                base_rate=rate,
                auc=auc(values, positive),
                brier=score,
                brier_base=base,
                skill=skill,
                log_loss=log_loss(values, positive),
                ece=ece(calibration(values, positive, bins)),
                open_rows=None if still is None else len(open_labels),
                open_base_rate=open_rate,
                open_auc=auc(open_values, open_labels),
                open_skill=open_skill,
            )
        )
    return result


def _against_base(
    values: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return the base rate, the Brier score, the Brier score of the base rate, and the skill."""
    score = brier(values, positive)
    if score is None:
        return None, None, None, None
    rate = float(positive.mean())
    base = rate * (1 - rate)
    return rate, score, base, 1 - score / base if base else None
