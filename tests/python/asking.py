"""Queries that compute functions of given values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import a2store
from board_rules import BOARDS, OF_BOARD, OF_BOARD_AND_NUMBER

CALLS = {
    "exps": "exps(board)",
    **{name: f"{name}(board)" for name in OF_BOARD},
    **{name: f"{name}(board, 1)" for name in OF_BOARD_AND_NUMBER},
    "afterstate_mask": "afterstate_mask(board, 1, 0)",
    "transform_mask": "transform_mask(board, 1, 0)",
    "canonical_mask": "canonical_mask(board, 0)",
    "transform_move": "transform_move(move, 1)",
    "spawn": "spawn(board, move, board)",
    "ev_gap": "ev_gap(ev_up, ev_down, ev_left, ev_right)",
    "ev_loss": "ev_loss(move, ev_up, ev_down, ev_left, ev_right)",
    "best_move": "best_move(ev_up, ev_down, ev_left, ev_right)",
    "phase_of": "phase_of(max_exp)",
}
"""Every function, called with columns of ``steps``."""


def literal(value: float | str | None, dtype: str) -> str:
    return f"CAST({'NULL' if value is None else repr(str(value))} AS {dtype})"


def values(rows: Sequence[Sequence[Any]], **dtypes: str) -> str:
    """Return these rows as a table in SQL. Numbers are written as text, which every type can parse exactly."""
    texts = ", ".join("(" + ", ".join("NULL" if v is None else f"'{v}'" for v in row) + ")" for row in rows)
    columns = (f"CAST(column{place} AS {dtype}) AS {name}" for place, (name, dtype) in enumerate(dtypes.items(), 1))
    return f"(SELECT {', '.join(columns)} FROM (VALUES {texts}))"


def boards(rows: Sequence[int | None] = BOARDS) -> str:
    return values([(board,) for board in rows], board="BIGINT UNSIGNED")


def ask(archive: a2store.Archive, call: str, source: str) -> Any:
    """Return the single column of a query, as a ``pyarrow.ChunkedArray``."""
    return pa.table(archive.sql(f"SELECT {call} AS value FROM {source}"))["value"]


def refusal(archive: a2store.Archive, sql: str) -> str:
    """Return the error message of a query that fails when it is planned or when it runs."""
    with pytest.raises(a2store.QueryError) as caught:
        archive.sql(sql).explain(analyze=True)
    assert caught.value.kind == "query"
    assert "\n" not in str(caught.value)
    assert "panicked" not in str(caught.value)
    return str(caught.value)
