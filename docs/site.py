"""Write the pages of the site into dist/pages: docs/, the README, the CHANGELOG, `--help`, and the docstrings.

python docs/site.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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


def help_of(*names: str) -> str:
    """Return the help of a command."""
    words = [sys.executable, "-m", "a2store", *names, "--help"]
    # The width of a page.
    environment = {**os.environ, "COLUMNS": "76"}
    return subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout


def commands_in(text: str) -> list[str]:
    """Return the commands that a help lists."""
    listed = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    return [name for name in re.findall(r"^  (\S+)", listed, re.MULTILINE) if name != "help"]


def command() -> str:
    """Return the page with the help of each command."""
    whole = help_of()
    pieces = ["# The command", "`a2store COMMAND --help` shows the same texts.", f"```text\n{whole}```"]
    for name in commands_in(whole):
        text = help_of(name)
        pieces += [f"## {name}", f"```text\n{text}```"]
        for part in commands_in(text):
            pieces += [f"### {name} {part}", f"```text\n{help_of(name, part)}```"]
    return "\n\n".join(pieces) + "\n"


def main() -> None:
    """Write the pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(ROOT / "examples", PAGES / "examples")
    sources = {"index": "README.md", "changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
    for page, source in sources.items():
        (PAGES / f"{page}.md").write_text((ROOT / source).read_text())
    (PAGES / "command.md").write_text(command())
    (PAGES / "api.md").write_text(reference.api())
    for path in PAGES.glob("*.md"):
        path.write_text(with_links_between_pages(path.read_text()))


if __name__ == "__main__":
    main()
