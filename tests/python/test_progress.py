"""``progress=`` as a function: its calls, and the effect of an exception in it."""

from __future__ import annotations

import re
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import a2store
import a2store._progress

Call = dict[str, Any]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    a2store.simulate(tmp_path / "runs", runs=5, depth=0, seed=1, progress=False)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("what", "unit"),
    [
        ("ingest", "bytes"),
        ("materialize", "rows"),
        ("save", "bytes"),
        ("load", "bytes"),
        ("verify", "bytes"),
        ("export", "runs"),
        ("simulate", "runs"),
        ("from_runs", "bytes"),
    ],
)
def test_the_function_is_called(runs: Path, tmp_path: Path, what: str, unit: str) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")
    if what != "ingest":
        archive.ingest(runs, progress=False)
    table = archive.sql("SELECT * FROM steps").materialize(progress=False)
    table.save(tmp_path / "t.npy", progress=False)
    everything = "SELECT run_id FROM runs"
    archive.export_runs(everything, tmp_path / "g.a2pack", format="a2pack", progress=False)
    work: dict[str, Callable[[Callable[[Call], object]], object]] = {
        "ingest": lambda f: archive.ingest(runs, progress=f),
        "materialize": lambda f: archive.sql("SELECT * FROM steps").materialize(progress=f),
        "save": lambda f: table.save(tmp_path / "u.npy", progress=f),
        "load": lambda f: a2store.StepTable.load(tmp_path / "t.npy", progress=f),
        "verify": lambda f: archive.verify(progress=f),
        "export": lambda f: archive.export_runs(everything, tmp_path / "out", format="a2run2", progress=f),
        "simulate": lambda f: a2store.simulate(tmp_path / "more", runs=3, depth=0, progress=f),
        "from_runs": lambda f: a2store.StepTable.from_runs(runs, progress=f),
    }
    calls: list[Call] = []
    threads = set()

    def function(state: Call) -> None:
        threads.add(threading.get_ident())
        calls.append(state)

    work[what](function)
    assert calls
    assert threads == {threading.get_ident()}
    assert all(list(call) == ["what", "unit", "done", "total", "seconds"] for call in calls)
    assert [call["seconds"] for call in calls] == sorted(call["seconds"] for call in calls)
    # The last call is after the work.
    assert (calls[-1]["unit"], calls[-1]["done"] > 0) == (unit, True)
    if what not in ("ingest", "from_runs"):
        # Those count their files beside the work, and stop counting when the work ends first.
        assert calls[-1]["done"] == calls[-1]["total"]


def test_an_exception_cancels_the_work(runs: Path, tmp_path: Path) -> None:
    archive = a2store.Archive.create(tmp_path / "games.a2")

    def function(state: Call) -> None:
        raise RuntimeError(f"no more at {state['done']}")

    # Without the exception this would take minutes, so a call comes in the middle.
    with pytest.raises(RuntimeError, match="no more at"):
        a2store.simulate(tmp_path / "many", runs=1_000_000, depth=0, progress=function)
    assert len(list((tmp_path / "many").iterdir())) < 1_000_000
    # Here the work may be complete before the first call. The last call raises too.
    with pytest.raises(RuntimeError, match="no more at"):
        archive.sql("SELECT * FROM (VALUES (1), (2)) AS v(board)").materialize(progress=function)
    report = archive.ingest(runs, progress=False)
    assert (report.accepted, archive.verify(progress=False).problems) == (5, [])


class Shown:
    """A stand-in for the display of a notebook: the objects that it shows, and their states."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.shown: list[object] = []

    def display(self, thing: Any, **keywords: object) -> Shown:
        self.shown.append(thing)
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.texts.append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """A process that looks like the kernel of a notebook."""
    shown = Shown()
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.__dict__.update(get_ipython=lambda: shell)
    display = types.ModuleType("IPython.display")
    display.__dict__.update(display=shown.display)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(a2store._progress, "_DELAY_SECONDS", 0.0)
    return shown


def test_a_notebook_shows_text(notebook: Shown, tmp_path: Path, capfd: Any) -> None:
    # This would take minutes. It is interrupted as soon as the bar has been seen.
    def update(data: dict[str, str], raw: bool) -> None:
        notebook.texts.append(data["text/plain"])
        if "left" in data["text/plain"]:
            signal.raise_signal(signal.SIGINT)

    notebook.update = update  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        a2store.simulate(tmp_path / "many", runs=1_000_000, depth=0)
    assert len(notebook.shown) == 1
    assert re.fullmatch(r"simulate \[█* *\] [\d,]+/1,000,000 runs [\d,]+/s, .* left", notebook.texts[-2])
    # At the end, the text is removed.
    assert notebook.texts[-1] == ""
    assert capfd.readouterr().err == ""
