"""Write the pages of the site into dist/pages: docs/, other Markdown files, examples, `--help`, and the docstrings.

python docs/site.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "dist" / "pages"
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
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#|images/|examples/|\w+\.md)[^)]*\)", r"\1", text)


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


def main() -> None:
    """Write the pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(ROOT / "examples", PAGES / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    sources = {"index": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
    for page, source in sources.items():
        (PAGES / f"{page}.md").write_text((ROOT / source).read_text())
    commands = ["# The commands", "`--help` shows the same texts.", *helps("a2store"), *helps("a2pack")]
    (PAGES / "command.md").write_text("\n\n".join(commands) + "\n")
    (PAGES / "api.md").write_text(reference.api())
    for path in PAGES.glob("*.md"):
        path.write_text(with_links_between_pages(path.read_text()))


if __name__ == "__main__":
    main()
