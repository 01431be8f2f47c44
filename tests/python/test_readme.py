"""The Python and shell blocks of the README and of the tour, run in order in one folder; links of all pages."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TOUR = ROOT / "docs" / "tour.md"
# The API reference is generated from docstrings; test_docs.py compares them.
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/*.md")})


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(program: str, folder: Path) -> str:
    """Run a program in a folder, and return its output."""
    # More threads would only wait for each other, because the batches are small.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def view_until_interrupted(command: list[str | Path], folder: Path) -> None:
    """Start the explorer, and stop it as Ctrl-C does."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert "games.a2" in server.stdout.readline()
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_python_and_shell_blocks_run(tmp_path: Path) -> None:
    [first] = blocks(README, "python")
    *others, exports = blocks(TOUR, "python")
    assert len(others) >= 8
    # The first block plays games into a new folder. In the last round, the archive has all of them.
    again = f"import shutil\nshutil.rmtree('runs')\n{first}"
    # A reader may run the blocks again; only exports need a new folder. All rounds run in one process, because the
    # imports take most of the time.
    rounds = [first, "\n".join(others), "\n".join([*others, exports]), again]
    program = f"for blocks in {rounds!r}:\n    names = {{}}\n    exec(blocks, names)\n"
    program += "    assert names['archive'].num_runs == 50\n"
    run(program, tmp_path)

    lines = [line for block in blocks(TOUR, "bash") for line in block.splitlines()]
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] in {"a2store", "a2pack", "python"}, line
        command = Path(sys.executable).with_name(words[0])
        # Expands patterns like the shell.
        args = [name for word in words[1:] for name in (sorted(map(str, tmp_path.glob(word))) or [word])]
        if words[1] == "view":
            view_until_interrupted([command, *args, "--no-browser"], tmp_path)
            continue
        done = subprocess.run([command, *args], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
    assert pq.read_table(tmp_path / "best.parquet").num_rows > 0


def test_the_page_about_training_runs(tmp_path: Path) -> None:
    program = "\n".join(blocks(ROOT / "docs" / "train.md", "python"))
    program = program.replace("runs=200", "runs=10").replace("val=0.1", "val=0.5")
    small = program.replace("range(4)", "range(1)").replace("=200", "=20")
    assert re.search(r"^untrained: 0\.\d{3}\nepoch 0: 0\.\d{3}\nmean score \d+; ", run(small, tmp_path), re.MULTILINE)


def test_the_page_about_critics_runs(tmp_path: Path) -> None:
    program = "\n".join(blocks(ROOT / "docs" / "train_critic.md", "python")).replace("runs=600", "runs=60")
    said = run(program, tmp_path)
    # The board of the last row has the tile 4096.
    assert re.search(r"\nrun \d+\nstep  highest  2048  4096\n(.+\n)*\d+ +4096 +\d\.\d +\d\.\d\n$", said)


def test_the_loop_on_its_page_improves_a_policy(tmp_path: Path) -> None:
    program = "\n".join(blocks(ROOT / "docs" / "loop.md", "python")).replace("num_games=800", "num_games=100")
    said = run(program, tmp_path)
    first, _, _, last = map(int, re.findall(r"^generation-\d: mean score (\d+)$", said, re.MULTILINE))
    assert first < last
    assert said.endswith("\nTrue\n")


@pytest.mark.parametrize("name", ["look", "choose", "pools"])
def test_a_notebook_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    notebook = runpy.run_path(str(ROOT / "docs" / "site.py"))["notebook"]
    page = (ROOT / "docs" / f"{name}.md").read_text()
    cells = [cell for cell in notebook(page)["cells"] if cell["cell_type"] == "code"]
    program = "\n".join("".join(cell["source"]) for cell in cells)
    expected = "".join(line for cell in cells for output in cell["outputs"] for line in output["text"])
    assert run(program, tmp_path) == expected


def test_the_readme_takes_five_lines_from_an_empty_folder_to_batches() -> None:
    [block] = blocks(README, "python")
    lines = block.splitlines()
    assert lines[:2] == ["import a2store", ""]
    assert len(lines) - 2 == 5
    assert "batch.tokens" in lines[-1]


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    [shown] = [block for block in blocks(README, "text") if block.startswith("$ make demo\n")]
    # Times and rates differ; all other numbers are the same on each machine.
    lines, printed = (
        re.sub(r"[\d.,]+(?:[kMG]?(?: steps)?/s| s)\b", "?", text).splitlines() for text in (shown, done.stdout)
    )
    rest = iter(printed)
    for line in lines[1:]:
        assert line == "…" or line in rest, line


def test_the_readme_is_short_and_its_pictures_are_small() -> None:
    text = README.read_text()
    assert len(text.split()) <= 1000
    pictures = re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    assert {Path(name).name for name in pictures} == {path.name for path in (ROOT / "docs" / "images").glob("*.webp")}
    for name in pictures:
        assert 0 < (ROOT / name).stat().st_size <= 120_000, name


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), (link, anchor)


def test_the_readme_links_to_every_page() -> None:
    text = README.read_text()
    for page in ROOT.glob("docs/*.md"):
        assert f"](docs/{page.name})" in text, page.name
