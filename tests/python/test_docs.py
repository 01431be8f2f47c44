"""The tables in the documentation equal the package's own descriptions."""

from __future__ import annotations

import html
import json
from pathlib import Path

import a2store

SQL = Path(__file__).parents[2] / "docs" / "sql.md"
TYPES = {
    "Boolean": "bool",
    "FixedSizeList(16 x non-null UInt8)": "list of 16 uint8 (fixed size)",
    "Utf8": "string",
}


def rows(name: str) -> list[list[str]]:
    """Return the cells of the table between two marker comments of this name."""
    text = SQL.read_text().split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]
    lines = text.splitlines()[2:]
    return [[html.unescape(cell.strip()) for cell in line.strip("|").split(" | ")] for line in lines]


def documented(arrow_type: str) -> str:
    if arrow_type.startswith("Struct("):
        return "struct<cell uint8, tile uint32>"
    return TYPES.get(arrow_type, arrow_type.lower())


def test_the_functions() -> None:
    def row(function: a2store.SqlFunction) -> list[str]:
        call, value = function.example
        return [f"`{function.signature}`", documented(function.returns), function.doc, f"`{call}` = `{value}`"]

    assert rows("functions") == [row(function) for function in a2store.functions()]


def test_the_named_queries() -> None:
    def parameter(parameter: a2store.SavedParameter) -> str:
        default = "" if parameter.required else f" = {json.dumps(parameter.default)}"
        return f"{parameter.name} {parameter.type}{default}"

    def row(query: a2store.SavedQuery) -> list[str]:
        first_sentence = query.purpose.split(". ")[0].removesuffix(".") + "."
        return [f"`{query.name}`", ", ".join(map(parameter, query.parameters)), first_sentence]

    assert rows("queries") == [row(query) for query in a2store.queries()]
