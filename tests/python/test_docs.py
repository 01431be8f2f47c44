"""The tables in the documentation equal the package's own descriptions."""

from __future__ import annotations

import html
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import a2store

ROOT = Path(__file__).parents[2]
SQL = ROOT / "docs" / "sql.md"
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
        return f"{parameter.name} {parameter.type} = {json.dumps(parameter.default)}"

    def row(query: a2store.SavedQuery) -> list[str]:
        first_sentence = query.purpose.split(". ")[0].removesuffix(".") + "."
        return [f"`{query.name}`", ", ".join(map(parameter, query.parameters)), first_sentence]

    assert rows("queries") == [row(query) for query in a2store.queries()]


def test_every_list_of_export_formats(tmp_path: Path) -> None:
    """The stub's types and the table of formats name what the package accepts."""
    with pytest.raises(ValueError, match="found toy") as error:
        a2store.convert([], tmp_path, format="toy")  # type: ignore[arg-type]
    listed = re.search("expected (.*), found", str(error.value))
    assert listed is not None
    formats = listed[1].split(", ")
    stub = (ROOT / "python" / "a2store" / "_a2store.pyi").read_text()
    literals = [re.findall('"([^"]+)"', names) for names in re.findall(r"Literal\[([^]]*jsonl[^]]*)\]", stub)]
    assert literals == [formats, [name for name in formats if name != "original"]]
    table = [line for line in (ROOT / "docs" / "formats.md").read_text().splitlines() if line.startswith("| `")]
    assert set(formats) - {"original"} <= {line.split("`")[1] for line in table}


def test_the_site_lists_every_page() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = [page for section in nav for pages in section.values() for page in pages]
    generated = ["api.md", "changelog.md", "command.md", "contributing.md", "index.md"]
    assert sorted(listed) == sorted([*generated, *(path.name for path in ROOT.glob("docs/*.md"))])


def test_the_example_patches_apply() -> None:
    patches = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(patches) == 3
    for patch in patches:
        # Someone may have applied it.
        checks = [["git", "apply", "--check", *reverse] for reverse in ([], ["--reverse"])]
        assert 0 in [subprocess.run(check, cwd=ROOT, input=patch, text=True).returncode for check in checks]
        assert len(re.findall("^[+]{3} ", patch, re.MULTILINE)) <= 5
