"""Metrics of probabilities: AUC, Brier score, calibration. They need only NumPy.

An undefined number is ``None``, never NaN; an example is the AUC if all labels are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt


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
    """Return the mean squared difference of probability and outcome (Brier 1950); ``None`` without rows."""
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
    """Return the mean probability and the rate of positive rows in bins of equal width."""
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
                threshold=int(threshold),
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
