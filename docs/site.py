"""Write the pages of the site into dist/pages: docs/, other Markdown files, examples, `--help`, docstrings, notebooks.

python docs/site.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "dist" / "pages"
NOTEBOOKS = ("look", "choose", "train", "loop", "train_critic", "pools")
"""The pages whose blocks of Python are one program."""
sys.path.insert(0, str(ROOT / "tests" / "python"))

import reference  # noqa: E402


def title(page: str) -> str:
    """Return the heading of a page in docs/."""
    return (ROOT / "docs" / page).read_text().partition("\n")[0].removeprefix("# ")


def with_links_between_pages(text: str) -> str:
    """Replace the links between files of the repository by links between pages, and other links by their texts."""
    text = re.sub(r"\[docs/(\w+\.md)\]", lambda page: f"[{title(page[1])}]", text)
    text = re.sub(r'(\]\(|src="|href="|srcset=")(?:\.\./)?docs/', r"\1", text)
    text = text.replace("](../examples/", "](examples/")
    text = re.sub(r"\]\((?:\.\./)?(CHANGELOG|CONTRIBUTING)\.md", lambda name: f"]({name[1].lower()}.md", text)
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#|images/|examples/|\w+\.(?:md|ipynb)\b)[^)]*\)", r"\1", text)


def help_of(command: str, *names: str) -> str:
    """Return the help of a command."""
    words = [str(Path(sys.executable).with_name(command)), *names, "--help"]
    # The width of a page.
    environment = {**os.environ, "COLUMNS": "76"}
    return subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout


def commands_in(text: str) -> list[str]:
    """Return the commands that a help lists."""
    listed = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    return [name for name in re.findall(r"^  (\S+)", listed, re.MULTILINE) if name != "help"]


def helps(*names: str) -> Iterator[str]:
    """Return the help of a command and of all commands in it."""
    text = help_of(*names)
    yield f"{'#' * (len(names) + 1)} {' '.join(names)}"
    yield f"```text\n{text}```"
    for name in commands_in(text):
        yield from helps(*names, name)


def notebook(text: str) -> dict[str, Any]:
    """Return a page as a Jupyter notebook, format 4.4. A block of text is the output of the block before it."""
    cells: list[dict[str, Any]] = []
    for part in re.split(r"^(```(?:python|text)\n.*?^```)$", text, flags=re.MULTILINE | re.DOTALL):
        block = part.removesuffix("```").partition("\n")[2].splitlines(keepends=True)
        if part.startswith("```python"):
            code = "".join(block).rstrip().splitlines(keepends=True)
            cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code})
        elif part.startswith("```text"):
            cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": block}]
        elif part.strip():
            words = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", part.strip())
            cells.append({"cell_type": "markdown", "metadata": {}, "source": words.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def main() -> None:
    """Write the pages and the notebooks."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(ROOT / "examples", PAGES / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    sources = {"index": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
    for page, source in sources.items():
        (PAGES / f"{page}.md").write_text((ROOT / source).read_text())
    commands = ["# The commands", "`--help` shows the same texts.", *helps("a2store"), *helps("a2pack")]
    (PAGES / "command.md").write_text("\n\n".join(commands) + "\n")
    (PAGES / "api.md").write_text(reference.api())
    for page in NOTEBOOKS:
        path = PAGES / f"{page}.md"
        (PAGES / f"{page}.ipynb").write_text(json.dumps(notebook(path.read_text()), indent=1, ensure_ascii=False))
        path.write_text(f"{path.read_text()}\nThis page is also a [notebook]({page}.ipynb).\n")
    for path in PAGES.glob("*.md"):
        path.write_text(with_links_between_pages(path.read_text()))


if __name__ == "__main__":
    main()
