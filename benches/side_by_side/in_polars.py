"""The saved queries of a2store, written for polars: functions of the module and the lazy frames of steps and runs.

They use only expressions that its streaming engine supports. Without shift operators, they multiply and divide. Values
are never NaN here, so only nulls are handled.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from questions import VALUES
from terms import (
    CELLS,
    IMAGES,
    INNER,
    INNER_ROW,
    LATE,
    LIMIT,
    MID,
    MIN_TILE,
    OUTER,
    OUTER_ROW,
    QUARTERS,
    SCORES,
    TILES,
    WIDTH,
    Z,
)


def score_histogram(pl: Any, _steps: Any, runs: Any) -> Any:
    """Count runs by bins of scores."""
    number = pl.col("num_runs")
    return (
        runs.group_by("engine", min_score=pl.col("max_score") // SCORES * SCORES)
        .agg(num_runs=pl.len())
        .with_columns(share=number / number.sum().over("engine"))
        .sort("engine", "min_score")
    )


def tile_reach(pl: Any, steps: Any, runs: Any) -> Any:
    """Compute the share of runs that reach each tile, and the median step."""
    exps = list(range(MIN_TILE, 16))
    tiles = pl.LazyFrame({"exp": exps, "tile": [1 << exp for exp in exps]}, schema={"exp": pl.UInt8, "tile": pl.UInt32})
    reached = (
        steps.filter(pl.col("highest_tile") >= 1 << MIN_TILE)
        .group_by("run_id", "max_exp")
        .agg(step=pl.col("step_index").min())
        .join(tiles, how="cross")
        .filter(pl.col("max_exp") >= pl.col("exp"))
        .group_by("run_id", "tile")
        .agg(pl.col("step").min())
    )
    there, number = pl.col("highest_tile") >= pl.col("tile"), pl.col("num_reached")
    return (
        runs.select("run_id", "engine", "highest_tile")
        .join(tiles, how="cross")
        .join(reached, on=["run_id", "tile"], how="left")
        .group_by("engine", "tile")
        .agg(
            num_runs=pl.len(),
            num_reached=there.sum(),
            share=there.mean(),
            median_step=pl.col("step").filter(there).median(),
        )
        .with_columns(spread=Z * (number * (1 - pl.col("share")) + Z**2 / 4).sqrt())
        .select(
            "engine",
            "tile",
            "num_runs",
            "num_reached",
            "share",
            ((number + Z**2 / 2 - pl.col("spread")) / (pl.col("num_runs") + Z**2)).clip(0, 1).alias("low"),
            ((number + Z**2 / 2 + pl.col("spread")) / (pl.col("num_runs") + Z**2)).clip(0, 1).alias("high"),
            "median_step",
        )
        .sort("engine", "tile")
    )


def tile_presence(pl: Any, steps: Any, _runs: Any) -> Any:
    """Count the boards that contain each tile, and the largest tiles, by bins of step indices."""
    two = pl.lit(2, pl.UInt32)
    # Bit k of `nibbles` is set if a nibble of the board is k.
    nibbles = reduce(or_, (two.pow(pl.col("board") // 16**cell % 16) for cell in range(16)))
    tiles = pl.LazyFrame({"exp": range(1, 16)}, schema={"exp": pl.UInt32})
    number, largest = pl.col("num_steps"), pl.col("num_largest")
    return (
        steps.group_by("max_exp", first_step=pl.col("step_index") // WIDTH * WIDTH, nibbles=nibbles)
        .agg(num_steps=pl.len())
        .join(tiles, how="cross")
        .filter(pl.col("nibbles") // two.pow(pl.col("exp")) % 2 == 1)
        .group_by("first_step", tile=two.pow(pl.col("exp")))
        .agg(num_containing=number.sum(), num_largest=number.filter(pl.col("max_exp") == pl.col("exp")).sum())
        .sort("first_step", "tile")
        .select(
            "first_step",
            "tile",
            "num_containing",
            (pl.col("num_containing") / largest.sum()).over("first_step").alias("share_containing"),
            "num_largest",
            (largest / largest.sum()).over("first_step").alias("share_largest"),
            (largest.cum_sum(reverse=True) / largest.sum()).over("first_step").alias("share_at_least"),
        )
    )


def phase_mix(pl: Any, steps: Any, _runs: Any) -> Any:
    """Compute the share of each phase."""
    number = pl.col("num_steps")
    return (
        # Groups by codes, renamed afterwards, take less time than groups by categories.
        steps.group_by(pl.col("engine", "phase").to_physical())
        .agg(num_steps=pl.len())
        .with_columns(pl.col("engine", "phase").cat.to(pl.Categorical))
        .with_columns(share=number / number.sum().over("engine"))
        .sort("engine", "phase")
    )


def _board_text(pl: Any, board: Any) -> Any:
    cells = [(board // (1 << shift) % 16).replace_strict(range(16), TILES) for shift in range(60, -1, -4)]
    rows = [pl.concat_str(cells[at : at + 4], separator=" ") for at in range(0, 16, 4)]
    return pl.concat_str(rows, separator=" / ").alias("tiles")


def _shown(pl: Any, steps: Any, few: Any) -> Any:
    """Look up the displayed columns of a few steps, which costs less than carrying them through the search."""
    of_board = ["board", "tile_65536_mask"]
    columns = ["run_id", "step_index", "engine", "phase", *of_board, _board_text(pl, pl.col("board")), "move", *VALUES]
    shown = ["run_id", "step_index", "engine", "phase", *of_board, "move", *VALUES]
    return few.join(steps.select(shown), on=["run_id", "step_index"]).select(*columns, pl.exclude(*shown))


def hard_moves(pl: Any, steps: Any, _runs: Any) -> Any:
    """Find the steps with the smallest gap above 0 between their two best values, at most 0.001.

    Of four values in two pairs, the second best is the lesser of the pairs' maxima or the larger of the pairs' minima.
    """
    order = ["ev_gap", "run_id", "step_index"]
    hardest = (
        steps.filter(pl.col("has_evs") & (pl.col("ev_legal").bitwise_count_ones() > 1))
        .select("run_id", "step_index", *(pl.col(name).fill_null(float("-inf")) for name in VALUES))
        .with_columns(
            high=pl.max_horizontal("ev_up", "ev_down"),
            low=pl.min_horizontal("ev_up", "ev_down"),
            top=pl.max_horizontal("ev_left", "ev_right"),
            bottom=pl.min_horizontal("ev_left", "ev_right"),
        )
        .with_columns(second=pl.max_horizontal(pl.min_horizontal("high", "top"), "low", "bottom"))
        .select("run_id", "step_index", ev_gap=pl.max_horizontal("high", "top") - pl.col("second"))
        .filter(pl.col("ev_gap").is_between(0, pl.lit(0.001, pl.Float32), closed="right"))
        .bottom_k(LIMIT, by=order)
    )
    return _shown(pl, steps, hardest).sort(order)


def blunders(pl: Any, steps: Any, _runs: Any) -> Any:
    """Find the steps whose move loses most against the best move."""
    best, move = pl.col("best"), pl.col("move")
    chosen = pl.coalesce(pl.when(move == at).then(pl.col(name)) for at, name in enumerate(VALUES))
    first = pl.coalesce(pl.when(pl.col(name) == best).then(pl.lit(at, pl.UInt8)) for at, name in enumerate(VALUES))
    worst = (
        steps.filter(pl.col("has_evs"))
        .with_columns(best=pl.max_horizontal(VALUES))
        .select("run_id", "step_index", first.alias("best_move"), ev_loss=best - chosen)
        .filter(pl.col("ev_loss") >= 0.1)
        .top_k(LIMIT, by=["ev_loss", "run_id", "step_index"], reverse=[False, True, True])
    )
    return _shown(pl, steps, worst).sort("ev_loss", "run_id", "step_index", descending=[True, False, False])


def _with_positions(pl: Any, boards: Any) -> Any:
    """Add the eight symmetric boards, and the smallest of them as ``position``."""

    def bits(x: Any, mask: int) -> Any:
        return x & pl.lit(mask, pl.UInt64)

    def swapped(x: Any, shift: int, stay: int, up: int, down: int) -> Any:
        return bits(x, stay) | bits(x, up) * (1 << shift) | bits(x, down) // (1 << shift)

    def flipped(x: Any, near: int, inner: int, far: int, outer: int) -> Any:
        return (
            bits(x // (1 << far), outer)
            | bits(x // (1 << near), inner)
            | bits(x, inner) * (1 << near)
            | bits(x, outer) * (1 << far)
        )

    def columns(name: str) -> Any:
        return flipped(pl.col(name), 4, INNER, 12, OUTER)

    def rows(name: str) -> Any:
        return flipped(pl.col(name), 16, INNER_ROW, 48, OUTER_ROW)

    return (
        boards.with_columns(b0=pl.col("board"), half=swapped(pl.col("board"), *CELLS))
        .with_columns(b6=swapped(pl.col("half"), *QUARTERS))
        .with_columns(b1=columns("b6"), b3=rows("b6"), b4=columns("b0"), b5=rows("b0"))
        .with_columns(b2=rows("b4"), b7=rows("b1"))
        .with_columns(position=pl.min_horizontal(f"b{at}" for at in range(8)))
    )


def unique_positions(pl: Any, steps: Any, _runs: Any) -> Any:
    """Count different boards and positions.

    Groups twice, so that each board is transformed only once.
    """
    exp = pl.col("max_exp")
    phase = pl.when(exp >= LATE).then(pl.lit("late")).when(exp >= MID).then(pl.lit("mid")).otherwise(pl.lit("early"))
    boards = steps.group_by("board").agg(exp.min(), num_steps=pl.len())
    return (
        _with_positions(pl, boards)
        .group_by("position")
        .agg(exp.min(), pl.col("num_steps").sum(), num_boards=pl.len())
        .group_by(phase=phase)
        .agg(pl.col("num_steps").sum(), pl.col("num_boards").sum(), num_positions=pl.len())
        .sort("phase")
    )


def _with_plays(pl: Any, steps: Any, first_steps: int) -> Any:
    """Keep the first steps of runs, with their position and the move on it.

    If several symmetries lead to the position, the move is the smallest of its images under them.
    """
    images = [pl.lit(pl.Series(images, dtype=pl.UInt8)).gather(pl.col("move")) for images in IMAGES]
    leading = (pl.when(pl.col("position") == pl.col(f"b{at}")).then(image) for at, image in enumerate(images))
    plays = _with_positions(pl, steps.filter(pl.col("step_index") < first_steps))
    return plays.with_columns(move=pl.min_horizontal(leading))


def _moves(pl: Any) -> dict[str, Any]:
    names = ("num_up", "num_down", "num_left", "num_right")
    return {name: (pl.col("move") == move).sum() for move, name in enumerate(names)}


def opening_book(pl: Any, steps: Any, _runs: Any) -> Any:
    """Count the moves on the most frequent positions."""
    return (
        _with_plays(pl, steps, 20)
        .group_by("position")
        .agg(**{"num_steps": pl.len(), **_moves(pl), "mean_score": pl.col("max_score").mean()})
        .top_k(LIMIT, by=["num_steps", "position"], reverse=[False, True])
        .sort("num_steps", "position", descending=[True, False])
        .select("position", _board_text(pl, pl.col("position")), pl.exclude("position"))
    )


def engine_agreement(pl: Any, steps: Any, _runs: Any) -> Any:
    """Compute how often two engines play the same move, over the positions that both met."""
    positions = (
        _with_plays(pl, steps.filter(pl.col("move").is_not_null()), 100)
        .group_by("engine", "position")
        .agg(num_steps=pl.len().cast(pl.Int64), **{key: value.cast(pl.Int64) for key, value in _moves(pl).items()})
        .with_columns(pl.col("engine").cast(pl.String))
    )
    other = pl.col("engine_other")
    same = sum(pl.col(name) * pl.col(f"{name}_other") for name in _moves(pl))
    return (
        positions.join(positions, on="position", suffix="_other")
        .filter((pl.col("engine") < other) | (pl.col("engine").is_not_null() & other.is_null()))
        .group_by("engine", other_engine=other)
        .agg(num_positions=pl.len(), agreement=(same / (pl.col("num_steps") * pl.col("num_steps_other"))).mean())
        .sort("engine", "other_engine")
    )


def critic_labels(pl: Any, steps: Any, _runs: Any) -> Any:
    """Label every step with the outcome of its run."""
    tile = pl.col("highest_tile")
    labels = {f"reaches_{least}": tile >= least for least in (8192, 16384, 32768)}
    return steps.select("run_id", "step_index", "board", "tile_65536_mask", **labels)
