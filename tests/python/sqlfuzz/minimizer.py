"""Shrinking a failing statement: delta debugging over its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .dtypes import BOOL, NULL, STR
from .tree import NONE, ClashError, Node, engine_sql, lit, make

OPTIONAL = {"select": (1, 2, 3, 4), "query": (3,), "agg": (1,), "case": (-1,), "switch": (-1,), "window": (1,)}
"""The removable parts of nodes."""
LISTS = {
    "items": 1,
    "order": 0,
    "list": 0,
    "group": 1,
    "in": 2,
    "and": 1,
    "or": 1,
    "coalesce": 1,
    "ctes": 0,
    "concat": 1,
}
"""Nodes with a variable number of parts, and the minimum of each."""
QUERIES = ("query", "select", "setop")
SOURCES = ("table", "derived", "join", "values", "row", "using")
OTHERS = ("items", "item", "order", "key", "group", "ctes", "cte", "limit", "list", "none", *QUERIES, *SOURCES)


def minimized(statement: Node, fails: Callable[[Node], bool], budget: int = 400) -> Node:
    """Return the smallest statement found for which ``fails`` holds, with at most ``budget`` calls of it."""
    best, size = statement, _size(statement)
    seen = {engine_sql(statement)}
    progress = True
    while progress:
        progress = False
        for candidate in _candidates(best):
            if _size(candidate) >= size:
                continue
            try:
                text = engine_sql(candidate)
            except (ClashError, KeyError, ValueError, IndexError):
                continue
            if text in seen:
                continue
            seen.add(text)
            if budget <= 0:
                return best
            budget -= 1
            if fails(candidate):
                best, size, progress = candidate, _size(candidate), True
                break
    return best


def _size(node: Node) -> tuple[int, int]:
    """Return the number of parts, then of uncommon constants and options."""
    parts = list(node.walk())
    return len(parts), sum(part.op == "lit" and part.value not in (0, 1) for part in parts) + sum(
        bool(part.value) for part in parts if part.op in ("select", "key", "query"))  # fmt: skip


def _candidates(node: Node) -> Iterator[Node]:
    """Yield statements with one change, the largest change first."""
    yield from _here(node)
    for place, arg in enumerate(node.args):
        for changed in _candidates(arg):
            try:
                yield node.with_arg(place, changed)
            except (ClashError, IndexError, KeyError, ValueError):
                continue


def _here(node: Node) -> Iterator[Node]:
    if node.op == "query":
        ctes, body, order, limit = node.args
        if body.op == "setop":
            for side in body.args:
                yield make("query", ctes, side, order, limit, value=node.value)
        if order.args:
            yield make("query", ctes, body, make("order"), limit, value=node.value)
        if node.value:
            yield make("query", ctes, body, order, limit)
        yield from _inner_queries(body)
    if node.op == "join":
        yield from node.args[:2]
        if node.value != "INNER":
            yield make("join", *node.args, value="INNER")
    if node.op == "select" and node.value:
        yield make("select", *node.args)
    if node.op == "group" and node.value:
        yield make("group", *node.args, value="")
    if node.op == "key" and node.value != (False, None):
        yield make("key", *node.args, value=(False, None))
    if node.op in OPTIONAL:
        for place in OPTIONAL[node.op]:
            place %= len(node.args)
            if node.args[place].op != "none":
                yield node.with_arg(place, NONE)
    if node.op in LISTS and len(node.args) > LISTS[node.op]:
        for place in range(len(node.args)):
            yield node.with_args((*node.args[:place], *node.args[place + 1 :]))
    if node.op == "case" and len(node.args) > 3:
        for place in range(0, len(node.args) - 1, 2):
            yield node.with_args((*node.args[:place], *node.args[place + 2 :]))
    if node.op == "switch" and len(node.args) > 4:
        for place in range(1, len(node.args) - 1, 2):
            yield node.with_args((*node.args[:place], *node.args[place + 2 :]))
    if node.op not in OTHERS:
        yield from _simpler(node)


def _inner_queries(node: Node) -> Iterator[Node]:
    for part in node.args:
        if part.op == "query":
            yield part
        else:
            yield from _inner_queries(part)


def _simpler(node: Node) -> Iterator[Node]:
    """Yield simpler expressions of the same type."""
    for part in _parts(node):
        if part is not node and part.type.family == node.type.family:
            yield part
    for part in _parts(node):
        if part is not node and part.type.is_number and node.type.is_number and part.type.family != node.type.family:
            yield part
    if node.op == "lit":
        if node.value not in (0, 1, None, True) and node.type.is_number:
            yield lit(1)
        return
    if node.type == BOOL:
        yield lit(True)
        yield lit(False)
    elif node.type == STR:
        yield lit("a")
    elif node.type != NULL:
        yield lit(1)
        yield lit(0)


def _parts(node: Node) -> Iterator[Node]:
    for arg in node.args:
        if arg.op in OTHERS:
            continue
        yield arg
        yield from _parts(arg)
