"""PNG plots with matplotlib, without its global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from .metrics import Bin, Scores

# The palette of Okabe and Ito, which is distinguishable with any colour vision.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GREY = "#777777"


def learning_curve(lines: Sequence[Mapping[str, Any]], file: BinaryIO) -> None:
    """Plot the losses, the AUC and the skill of each threshold over the steps, from the lines of ``metrics.jsonl``."""
    figure = _figure(13, 4)
    loss, area, skill = figure.subplots(1, 3)
    steps = [line["step"] for line in lines]
    for name, label, colour in (("train_loss", "train", _GREY), ("val_loss", "held-out runs", _COLOURS[0])):
        _series(loss, steps, [line[name] for line in lines], label, colour)
    loss.set_ylabel("binary cross-entropy (nats)")
    loss.set_title("Loss")
    thresholds = [score["threshold"] for score in lines[0]["val"]] if lines else []
    for k, threshold in enumerate(thresholds):
        colour = _COLOURS[k % len(_COLOURS)]
        for axes, name in ((area, "auc"), (skill, "skill")):
            _series(axes, steps, [line["val"][k][name] for line in lines], f"reaches {threshold}", colour)
    for axes, level in ((area, 0.5), (skill, 0.0)):
        axes.axhline(level, color=_GREY, linewidth=1, linestyle="--", label="base rate")
    area.set_title("AUC of steps of held-out runs")
    skill.set_title("Brier skill on held-out runs")
    for axes in (loss, area, skill):
        axes.set_xlabel("optimizer steps")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        _tidy(axes)
    loss.legend(frameon=False, fontsize="small")
    figure.legend(*area.get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False)
    figure.savefig(file, format="png")


def reliability(scores: Sequence[Scores], bins: Mapping[str, Sequence[Bin]], file: BinaryIO) -> None:
    """Plot, per threshold, the rate of positive rows and the number of rows for each predicted probability."""
    figure = _figure(max(4.2, 3.8 * len(scores)), 5)
    grid = figure.subplots(2, len(scores), squeeze=False, sharex=True, height_ratios=(3, 1))
    for k, score in enumerate(scores):
        table = bins[str(score["threshold"])]
        colour = _COLOURS[k % len(_COLOURS)]
        curve, counts = grid[0][k], grid[1][k]
        curve.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--", label="perfect")
        if score["base_rate"] is not None:
            curve.axhline(score["base_rate"], color=_GREY, linewidth=1, linestyle=":", label="base rate")
        filled = [part for part in table if part["count"]]
        means = [part["mean_probability"] for part in filled]
        rates = [part["positive_rate"] for part in filled]
        curve.plot(means, rates, color=colour, alpha=0.5)
        # The area grows with the number of rows, so a bin with few rows is small.
        areas = [8 + 150 * part["count"] / max(1, score["num_rows"]) for part in filled]
        curve.scatter(means, rates, areas, color=colour, clip_on=False, zorder=3, label="critic, by number of steps")
        curve.set_title(f"Reaches {score['threshold']}\n{_caption(score)}", fontsize="medium")
        curve.set_xlim(0, 1)
        curve.set_ylim(0, 1)
        total = max(1, score["num_rows"])
        width = 1 / len(table)
        counts.bar(
            [part["low"] + width / 2 for part in table],
            [part["count"] / total for part in table],
            0.9 * width,
            color=colour,
        )
        counts.set_xlabel("probability")
        counts.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        counts.yaxis.set_major_locator(MaxNLocator(3))
        if k == 0:
            curve.set_ylabel("share that reaches it")
            counts.set_ylabel("steps")
        _tidy(curve)
        _tidy(counts)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(file, format="png")


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _series(axes: Any, steps: Sequence[int], values: Sequence[float | None], label: str, colour: str) -> None:
    points = [(step, value) for step, value in zip(steps, values, strict=True) if value is not None]
    if not points:
        label += " (undefined)"
    axes.plot(*zip(*points, strict=True) if points else ([], []), color=colour, marker=".", label=label)


def _caption(score: Scores) -> str:
    if score["auc"] is None or score["skill"] is None or score["ece"] is None:
        return "AUC undefined"
    return f"AUC {score['auc']:.3f}, skill {score['skill']:.3f}, ECE {score['ece']:.3f}"


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
