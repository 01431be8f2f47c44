"""Inputs shared by the tests: simulated runs of several engines, an archive of them, and its expected content.

Tests that change an archive make their own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import a2store
import oracle
from archives import copied, ingested, short_runs
from compare import keys
from oracle import Array, Game
from sources import Expected
from trees import Tree
from viewing import Client, Server

pytest_plugins = ["browser", "faults.plugin", "object_store.plugin"]

if "PYTEST_XDIST_WORKER" in os.environ:
    # Otherwise each worker would start as many threads as there are cores. PyTorch reads this when it is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start background jobs with SIGINT ignored, and the processes that the tests interrupt inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
WITHOUT_FIXTURES = "../shared/fixtures is not there"

PHASES = {"mid": 256, "late": 512}
"""Thresholds that the short simulated games reach."""
RUNS_PER_ENGINE = 20

Steps = dict[str, Array]


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real files, which is not part of the repository."""
    if not FIXTURES.is_dir():
        pytest.skip(WITHOUT_FIXTURES)
    return FIXTURES


def varied(game: Game, index: int) -> Game:
    """Return the game with data that the simulator never writes: times, steps without values, sometimes no engine."""
    branches = tuple(None if step % 10 == 3 else values for step, values in enumerate(game.branches))
    engine = None if index % 5 == 4 else "γάμμα"
    return replace(game, branches=branches, engine=engine, start_unix_s=1_700_000_000 + index, elapsed_s=index / 8)


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three folders of run files, one per engine: a2run2, A2T1, and a2run2 written by the oracle."""
    root = tmp_path_factory.mktemp("runs")
    options: dict[str, Any] = {"runs": RUNS_PER_ENGINE, "depth": 0, "progress": False}
    a2store.simulate(root / "alpha", seed=1, engine="alpha", **options)
    a2store.simulate(root / "beta", seed=2, engine="beta", format="a2t1", **options)
    a2store.simulate(root / "plain", seed=3, **options)
    (root / "gamma").mkdir()
    for index, path in enumerate(sorted((root / "plain").iterdir())):
        game = varied(oracle.decode(path.read_bytes()), index)
        (root / "gamma" / path.name).write_bytes(oracle.encode_a2run2(game))
    return [root / "alpha", root / "beta", root / "gamma"]


@pytest.fixture(scope="session")
def run_files(run_folders: list[Path]) -> list[Path]:
    """The files, in the order of the runs' ids in ``archive``."""
    files = [path for folder in run_folders for path in sorted(folder.iterdir())]
    assert len(files) == 3 * RUNS_PER_ENGINE
    return files


@pytest.fixture(scope="session")
def games(run_files: list[Path]) -> list[Game]:
    return [oracle.decode(path.read_bytes()) for path in run_files]


@pytest.fixture(scope="session")
def archive(run_folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> a2store.Archive:
    """All runs, in one commit per engine and so one file of steps per engine."""
    archive = a2store.Archive.create(tmp_path_factory.mktemp("archive") / "games.a2", phases=PHASES)
    for folder in run_folders:
        archive.ingest(folder, progress=False)
    return archive


@pytest.fixture(scope="session")
def steps(games: list[Game]) -> Steps:
    """The expected content of the archive's ``steps``."""
    columns = oracle.step_columns(games, (PHASES["mid"], PHASES["late"]))
    # Every kind of step must occur, or the tests that filter by it test nothing.
    assert set(columns["phase"]) == {"early", "mid", "late"}
    assert set(columns["engine"]) == {"alpha", "beta", "γάμμα", None}
    assert set(columns["has_evs"]) == {True, False}
    return columns


@pytest.fixture(scope="session")
def all_keys(steps: Steps) -> Array:
    """The key of each row of ``table``, in order."""
    return keys(steps)


@pytest.fixture(scope="session")
def table(archive: a2store.Archive) -> a2store.StepTable:
    return archive.sql("SELECT * FROM steps").materialize(progress=False)


@pytest.fixture(scope="module")
def expected(tree: Tree) -> list[Expected]:
    """The runs of ``tree``, a fixture of the module."""
    return tree.expected()


@pytest.fixture(scope="module")
def viewer(archive: a2store.Archive) -> Iterator[Server]:
    """A running ``a2store view`` of the archive."""
    with Server(archive.path) as server:
        yield server


@pytest.fixture(scope="module")
def client(viewer: Server) -> Client:
    return viewer.client


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Sixty short runs in both formats, in the order of their names."""
    return short_runs(tmp_path_factory.mktemp("short") / "runs", 60)


@pytest.fixture
def fresh(path: Path) -> a2store.Archive:
    """The archive at ``path``, which the test may change."""
    return a2store.Archive.open(path)


@pytest.fixture
def pack(path: Path) -> a2store.PackReader:
    """The pack at ``path``, a fixture of the module."""
    return a2store.PackReader.open(path)


@pytest.fixture
def one_thread() -> None:
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    """A copy of the archive ``template``, a fixture of the module."""
    return copied(template, tmp_path / "games.a2")


@pytest.fixture
def one_run(run_files: list[Path], tmp_path: Path) -> a2store.Archive:
    """A new archive of a single run, for tests that change it."""
    return ingested(tmp_path / "one.a2", run_files[0], phases=PHASES)
