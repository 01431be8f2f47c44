"""Writes the docstrings of the extension into its stub. ``api`` returns the API reference, a page of the site.

The text of a docstring is written once: in Rust, above the item, or in Python. The stub has the types. Methods that
CPython describes itself, such as ``__len__``, have their docstrings only in the stub.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import WrapperDescriptorType
from typing import Any

from a2store import _a2store

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "a2store"
STUB = PACKAGE / "_a2store.pyi"
ERRORS = PACKAGE / "_errors.py"
WIDTH = 120

MODULES = {
    "a2store": "__init__.py",
    "a2store.cluster": "cluster.py",
    "a2store.selfplay": "selfplay/__init__.py",
    "a2store.selfplay.gym": "selfplay/gym.py",
    "a2store.torch": "torch.py",
    "a2store.critic": "critic/__init__.py",
    "a2store.critic.config": "critic/config.py",
}

SETUP = """\
import numpy as np
import pyarrow as pa

import a2store

a2store.simulate("runs", runs=20, seed=1)
archive = a2store.Archive.create("games.a2")
archive.ingest("runs")
archive.export_runs("SELECT run_id FROM runs", "games.a2pack", format="a2pack")
archive.export_runs("SELECT run_id FROM runs", "session", format="session")
"""
"""The files that the examples use."""

OBJECTS = """\
archive = a2store.Archive.open("games.a2")
query = archive.sql("SELECT * FROM steps")
table = query.materialize()
"""
"""The objects that the examples use."""


# The stub


def described(name: str, owner: Any = _a2store) -> str | None:
    """Return the docstring of an item of the extension; ``None`` if CPython describes it."""
    item = vars(owner).get(name)
    # The description of a constructor is part of its class.
    if item is None or isinstance(item, WrapperDescriptorType) or name == "__new__":
        return None
    item = item if isinstance(item, property) else getattr(owner, name)
    return None if item.__doc__ is None else inspect.cleandoc(item.__doc__)


def of_field(name: str, text: str) -> str | None:
    """Return the description of a field in the list of a class's docstring."""
    found = re.search(rf"^- ``{name}``: (.*(?:\n  .*)*)", text, re.MULTILINE)
    return found and found[1][0].upper() + " ".join(found[1].split())[1:]


def quoted(text: str, column: int) -> list[str]:
    """Return the lines of a docstring literal."""
    prefix = 'r"""' if "\\" in text else '"""'
    margin = " " * column
    if "\n" not in text and len(margin) + len(text) + len(prefix) + 3 <= WIDTH:
        return [f'{margin}{prefix}{text}"""']
    if "\n" not in text:
        # Only the description of a field is not broken into lines yet.
        first, _, rest = text.partition(". ")
        text = "\n".join([f"{first}.", *(["", *textwrap.wrap(rest, WIDTH - column)] if rest else [])])
    first, *others = text.split("\n")
    return [margin + prefix + first, *(margin + line if line else "" for line in others), margin + '"""']


def lines_of_decorators(node: ast.stmt) -> list[int]:
    return [decorator.lineno for decorator in getattr(node, "decorator_list", [])]


def edits(body: list[ast.stmt], owner: Any, text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Return the ranges of lines to replace, and their new content."""
    for place, node in enumerate(body):
        following = body[place + 1 : place + 2]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and inspect.isclass(owner):
            doc = of_field(node.target.id, text)
            if doc is not None and node.end_lineno is not None:
                old = following[0].end_lineno if following and isinstance(following[0], ast.Expr) else node.end_lineno
                yield node.end_lineno, old or node.end_lineno, quoted(doc, node.col_offset)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        doc = described(node.name, owner)
        if doc is not None:
            first = node.body[0]
            start, last = min([first.lineno, *lines_of_decorators(first)]), first.end_lineno or 0
            lines = quoted(doc, node.col_offset + 4)
            if ast.get_docstring(node) is not None:
                yield start - 1, last, lines
            elif isinstance(first, ast.Expr):
                # The body is the "..." at the end of the signature's line.
                yield last - 1, last, [STUB.read_text().splitlines()[last - 1].removesuffix(" ..."), *lines]
            else:
                yield start - 1, start - 1, [*lines, ""]
        if isinstance(node, ast.ClassDef):
            yield from edits(node.body, getattr(_a2store, node.name), doc or "")


def stub() -> str:
    """Return the stub with the docstrings of the built extension."""
    text = STUB.read_text()
    lines = text.splitlines()
    for start, end, new in sorted(edits(ast.parse(text).body, _a2store, ""), key=lambda edit: edit[0], reverse=True):
        lines[start:end] = new
    return "\n".join(lines) + "\n"


# The reference


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(stub() if path == STUB else path.read_text())


def exported(path: Path) -> list[str]:
    """Return the names in ``__all__``."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError(f"{path}: no __all__")


def found(path: Path, name: str) -> tuple[Path, int]:
    """Return the file that defines a name, and the place among the statements of that file."""
    for place, node in enumerate(parsed(path).body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return path, place
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return path, place
    # Modules that are imported on first use are imported in a block for type checkers.
    for part in ast.walk(parsed(path)):
        if isinstance(part, ast.ImportFrom) and part.level and name in [alias.name for alias in part.names]:
            home = path.parents[part.level - 1] / (part.module or "")
            return found(STUB if part.module == "_a2store" else home.with_suffix(".py"), name)
    raise AssertionError(f"{path}: {name} is not defined")


class _Written(ast.NodeTransformer):
    """Replaces the private names of types with their meaning."""

    def __init__(self, path: Path) -> None:
        nodes = [node for node in parsed(path).body if isinstance(node, ast.AnnAssign) and node.value is not None]
        aliases = [node for node in nodes if ast.unparse(node.annotation) == "TypeAlias"]
        self.meaning = {ast.unparse(node.target): node.value for node in aliases}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        meaning = self.meaning.get(node.id)
        return node if meaning is None or node.id == "Policy" else self.visit(meaning)


def signature(path: Path, node: ast.FunctionDef, name: str, *, with_self: bool = True) -> str:
    """Return the signature of a function, on several lines if it is long."""
    function = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(function, ast.FunctionDef)
    _Written(path).visit(function)
    args = function.args
    if with_self:
        del (args.posonlyargs or args.args)[:1]
    returns = "" if function.returns is None or node.name in ("__init__", "__new__") else ast.unparse(function.returns)
    arrow = f" -> {returns}" if returns else ""
    line = f"{name}({', '.join(parameters(args))}){arrow}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parameters(args)), f"){arrow}"])


def parameters(args: ast.arguments) -> list[str]:
    """Return the text of each parameter."""

    def one(arg: ast.arg, default: ast.expr | None) -> str:
        equals = " = " if arg.annotation else "="
        return ast.unparse(arg) + ("" if default is None else equals + ast.unparse(default))

    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    texts = [one(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    if args.posonlyargs:
        texts.insert(len(args.posonlyargs), "/")
    if args.vararg:
        texts.append(f"*{ast.unparse(args.vararg)}")
    elif args.kwonlyargs:
        texts.append("*")
    texts += [one(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return texts + ([f"**{ast.unparse(args.kwarg)}"] if args.kwarg else [])


def markdown(doc: str) -> str:
    """Return a docstring as Markdown, with its examples as code."""
    lines: list[str] = []
    in_example = False
    for line in [*doc.splitlines(), ""]:
        if not in_example and line.startswith(">>>"):
            lines.append("```pycon")
            in_example = True
        elif in_example and not line:
            lines.append("```")
            in_example = False
        lines.append(line if in_example else line.replace("``", "`"))
    return "\n".join(lines).strip()


def decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def section(path: Path, name: str, place: int, heading: str) -> Iterator[str]:
    """Return the section of an item in the reference."""
    body = parsed(path).body
    node = body[place]
    yield f"### {heading}"
    if isinstance(node, ast.AnnAssign):
        yield f"```python\n{ast.unparse(node)}\n```"
        following = body[place + 1]
        assert isinstance(following, ast.Expr)
        assert isinstance(following.value, ast.Constant)
        yield markdown(inspect.cleandoc(str(following.value.value)))
        return
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    if isinstance(node, ast.FunctionDef):
        yield f"```python\n{signature(path, node, name, with_self=False)}\n```"
    methods = [method for method in getattr(node, "body", []) if isinstance(method, ast.FunctionDef)]
    if isinstance(node, ast.ClassDef):
        made = [method for method in methods if method.name in ("__init__", "__new__")]
        if made:
            yield f"```python\n{signature(path, made[0], name)}\n```"
        bases = [ast.unparse(base) for base in node.bases]
        if bases and path in (STUB, ERRORS):
            yield f"Base class: `{bases[0]}`."
    yield markdown(ast.get_docstring(node) or "")
    if isinstance(node, ast.FunctionDef):
        return
    members = [method for method in methods if ast.get_docstring(method) and not method.name.startswith("_")]
    getters = [method for method in members if "property" in decorators(method)]
    lines = []
    for getter in getters:
        returns = "" if getter.returns is None else ast.unparse(_Written(path).visit(getter.returns))
        doc = textwrap.indent(markdown(ast.get_docstring(getter) or ""), "  ").strip()
        lines.append(f"- `{getter.name}`: `{returns}`. {doc}")
    if lines:
        yield "\n".join(lines)
    for method in members:
        if method not in getters:
            whole = f"{name}.{method.name}"
            yield f"#### {whole}"
            has_self = "staticmethod" not in decorators(method)
            yield f"```python\n{signature(path, method, whole, with_self=has_self)}\n```"
            yield markdown(ast.get_docstring(method) or "")


def api() -> str:
    """Return the API reference."""
    pieces = [
        "# API reference",
        "The public names of the Python package. `help` shows the same texts.",
    ]
    sections: list[str] = []
    headings: dict[tuple[Path, int], str] = {}
    for module, file in MODULES.items():
        path = PACKAGE / file
        homes = {name: found(path, name) for name in exported(path) if not name.startswith("_")}
        # A name that two modules export has one section.
        new = {name: home for name, home in homes.items() if home not in headings}
        for name, home in new.items():
            taken = name in headings.values()
            headings[home] = f"{module.removeprefix('a2store.')}.{name}" if taken else name
        links = [f"[{name}](#{headings[home].lower().replace('.', '')})" for name, home in homes.items()]
        pieces.append(f"- `{module}`: {', '.join(links)}")
        sections += [f"## {module}", markdown(ast.get_docstring(parsed(path)) or "")]
        # The extension's names have the order of its stub.
        order = [name for name in new if new[name][0] != STUB]
        for name in sorted(new, key=lambda name: order.index(name) if name in order else new[name][1] - len(new)):
            sections += section(new[name][0], name, new[name][1], headings[new[name]])
    examples = [
        "## The examples",
        "The test suite runs all examples. They use these files:",
        f"```python\n{SETUP}```",
        "Each example begins with these objects:",
        f"```python\n{OBJECTS}```",
    ]
    return "\n\n".join([*pieces, *examples, *sections]) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
