"""The tables in the documentation equal the package's own descriptions."""

from __future__ import annotations

import ast
import doctest
import html
import importlib
import inspect
import json
import re
import shutil
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import a2store
import reference

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


# Docstrings


SOURCES = reference.ROOT / "python" / "src"


class Item(NamedTuple):
    """A public name: a class, a function, a method or a property."""

    name: str
    value: Any
    doc: str
    is_getter: bool
    is_special: bool
    """Whether this is a special method, such as ``__len__``. Operators and protocols call it, not people."""


def of_class(name: str, cls: type) -> Iterator[Item]:
    yield Item(name, cls, cls.__doc__ or "", False, False)
    for member, value in sorted(vars(cls).items()):
        is_special = member.startswith("__")
        is_getter = inspect.isdatadescriptor(value) and not callable(value)
        if not (callable(value) or is_getter or isinstance(value, classmethod | staticmethod)):
            continue
        if is_special and not callable(value):
            continue
        if member.startswith("_") and not is_special:
            continue
        bound = value if is_getter else getattr(cls, member)
        # A special method may inherit its docstring.
        doc = (inspect.getdoc(bound) if is_special else bound.__doc__) or ""
        yield Item(f"{name}.{member}", bound, doc, is_getter, is_special)


def walk() -> Iterator[Item]:
    seen = set()
    for module_name in reference.MODULES:
        module = importlib.import_module(module_name)
        yield Item(module_name, module, module.__doc__ or "", False, True)
        for name in module.__all__:
            value = getattr(module, name)
            # Two modules may export the same class.
            if id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                yield from of_class(f"{module_name}.{name}", value)
            elif inspect.isroutine(value):
                yield Item(f"{module_name}.{name}", value, value.__doc__ or "", False, False)


ITEMS = list(walk())
CALLED = [item for item in ITEMS if not item.is_getter and not item.is_special]
WITH_EXAMPLE = [item for item in ITEMS if ">>>" in item.doc]


def test_the_walk_reaches_everything() -> None:
    classes = [item for item in ITEMS if inspect.isclass(item.value)]
    getters = [item for item in ITEMS if item.is_getter]
    print(
        f"{len(ITEMS)} names: {len(classes)} classes, {len(CALLED) - len(classes)} functions and methods, "
        f"{len(getters)} properties; {len(WITH_EXAMPLE)} have an example"
    )
    assert len(classes) > 60
    assert len(CALLED) - len(classes) > 80
    # The fields of dataclasses are no properties.
    assert len(getters) > 55
    assert len({item.name for item in ITEMS}) == len(ITEMS)


def test_everything_has_a_docstring() -> None:
    def is_sentence(doc: str) -> bool:
        first = " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())
        return len(first.split()) >= 2 and first[-1] in ".:"

    assert [item.name for item in ITEMS if not is_sentence(item.doc)] == []


def test_every_signature_is_known() -> None:
    def has_signature(item: Item) -> bool:
        try:
            return inspect.signature(item.value) is not None
        except ValueError:
            # Python's own exceptions have no signatures either.
            return isinstance(item.value, type) and issubclass(item.value, Exception)

    assert [item.name for item in CALLED if not has_signature(item)] == []


def test_every_parameter_is_described() -> None:
    missing, count = [], 0
    for item in CALLED:
        try:
            parameters = inspect.signature(item.value).parameters
        except ValueError:
            continue
        for name in parameters:
            if name in ("self", "cls") or (isinstance(item.value, type) and issubclass(item.value, Exception)):
                continue
            count += 1
            # The list of parameters has one or several names before the colon.
            if not re.search(rf"^\s*- (``\w+``,\s+)*``{name}``[^:]*:", item.doc, re.MULTILINE):
                missing.append(f"{item.name}: {name}")
    assert count > 250
    assert missing == []


def fallible() -> set[str]:
    """Return the functions and methods of the extension that can fail, as ``Class.method`` or ``function``."""
    names, classes = set(), {}
    for path in SOURCES.rglob("*.rs"):
        source = path.read_text()
        for attribute, struct in re.findall(r"^#\[pyclass\((.*?)\)\].*?struct (\w+)", source, re.MULTILINE | re.DOTALL):
            named = re.search(r'name = "(\w+)"', attribute)
            classes[struct] = named[1] if named else struct
    for path in SOURCES.rglob("*.rs"):
        source = path.read_text()
        methods = re.findall(r"^#\[pymethods\].*?^impl (\w+) \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
        for struct, body in methods:
            for name, returns in re.findall(r"^    fn (\w+)[^{]*?-> (.*?) \{$", body, re.MULTILINE | re.DOTALL):
                if "Result<" in returns:
                    names.add(f"{classes[struct]}.{name}")
        functions = r"^#\[pyfunction\](.*?)^(?:pub\(super\) )?fn (\w+)[^{]*?-> (.*?) \{$"
        for attributes, name, returns in re.findall(functions, source, re.MULTILINE | re.DOTALL):
            renamed = re.search(r'name = "(\w+)"', attributes)
            if "Result<" in returns:
                names.add(renamed[1] if renamed else name)
    return names


def raises(value: Any) -> bool:
    """Return whether a Python function, or the constructor of a Python class, has a ``raise`` statement."""
    function = value.__init__ if inspect.isclass(value) else value
    if not inspect.isfunction(function) or function.__code__.co_filename == "<string>":
        return False
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def test_errors_are_described() -> None:
    names = fallible()
    in_rust = [item for item in CALLED if ".".join(item.name.split(".")[1:]).removeprefix("selfplay.") in names]
    in_python = [item for item in CALLED if raises(item.value)]
    assert len(in_rust) > 60
    assert len(in_python) > 8
    assert [item.name for item in [*in_rust, *in_python] if not re.search(r"\braises?\b", item.doc, re.I)] == []


def test_references_to_members_exist() -> None:
    classes = {item.name.split(".")[-1]: item for item in ITEMS if inspect.isclass(item.value)}
    references = {found for item in ITEMS for found in re.findall(r"``(?:a2store\.)?([A-Z]\w+)\.(\w+)", item.doc)}
    assert len(references) > 20
    missing = []
    for name, member in references:
        # Fields that instances have on their own are listed in the docstring of their class.
        if name in classes and not hasattr(classes[name].value, member) and f"- ``{member}``" not in classes[name].doc:
            missing.append(f"{name}.{member}")
    assert missing == []


def test_everything_that_is_called_has_an_example() -> None:
    # The tests do not require JAX and Ray.
    without = {"a2store.Batch.to_jax", "a2store.cluster.RayExecutor", "a2store.cluster.RayExecutor.submit"}
    others = [item for item in CALLED if item.name not in without]
    assert [item.name for item in others if ">>>" not in item.doc] == []


def test_the_stub_is_up_to_date() -> None:
    assert reference.STUB.read_text() == reference.stub(), "run: make stubs"


def test_the_api_reference_has_every_name() -> None:
    headings = re.findall(r"^####? (.*)$", reference.api(), re.MULTILINE)
    assert {item.name.split(".")[-1] for item in CALLED} <= {heading.split(".")[-1] for heading in headings}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples use."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(reference.SETUP, {})
    return folder


@pytest.mark.parametrize("item", WITH_EXAMPLE, ids=lambda item: item.name)
def test_the_example_runs(item: Item, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(files, tmp_path / "files")
    monkeypatch.chdir(tmp_path / "files")
    names: dict[str, Any] = {}
    exec("\n".join(line for line in reference.SETUP.splitlines() if line.startswith("import")), names)
    exec(reference.OBJECTS, names)
    example = doctest.DocTestParser().get_doctest(inspect.cleandoc(item.doc), names, item.name, None, 0)
    assert example.examples
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=report.append)
    assert not report, "".join(report)
