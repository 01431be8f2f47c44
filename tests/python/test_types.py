"""Types and texts of what the package returns: times, paths, and the repr of every class."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import a2store
import reference
from a2store import selfplay


def public_classes() -> set[type]:
    """Return every public class that is no exception."""
    found = set()
    for module_name in reference.MODULES:
        pytest.importorskip(module_name.partition(".")[0])
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and not issubclass(value, BaseException):
                found.add(value)
    return found


def make(folder: Path) -> Iterator[Any]:
    """Return an instance of each class."""
    os.chdir(folder)
    yield a2store.simulate("runs", runs=12, seed=1, depth=0, progress=False)
    archive = a2store.Archive.create("games.a2")
    yield archive
    yield archive.ingest("runs", progress=False)
    (folder / "cut.a2run2").write_bytes((folder / "runs/run-00000.a2run2").read_bytes()[:-9])
    yield archive.ingest("cut.a2run2", progress=False).errors[0]
    yield archive.history()[0]
    yield archive.compact(progress=False)
    yield archive.expire()
    yield archive.verify(progress=False)
    runs = "SELECT run_id FROM runs"
    yield archive.export_runs(runs, "games.a2pack", format="a2pack", progress=False)
    archive.export_runs(runs, "session", format="session", progress=False)
    query = archive.sql("SELECT * FROM steps")
    yield query
    yield query.to_batches()
    yield next(query.to_batches())
    yield archive.schema("steps")
    yield archive.report(progress=False)
    yield archive.run(0).position(0)
    yield archive.run(0).position(0).board
    yield archive.run(0).replay()
    with archive.view(open_browser=False) as view:
        yield view
    table = query.materialize(progress=False)
    yield table
    yield query.materialize(shard=(0, 1), progress=False).shard
    yield table.rows_array()
    yield table.take([0])
    yield table.loader()
    yield iter(table.loader())
    keys = table.take_rows([0])[["run_id", "step_index"]]
    yield archive.annotate("m", keys, partial=True, progress=False)
    yield archive.annotations()[0]
    Path(archive.files("runs")[0]).unlink()
    yield archive.verify(progress=False).problems[0]
    (archive.path / "_log" / f"{archive.version:020}.json").write_text("{}")
    repair = a2store.repair(archive.path)
    yield repair
    yield repair.steps[0]
    pack = a2store.PackReader.open("games.a2pack")
    yield pack
    yield pack.stats
    yield pack.to_jsonl("games.jsonl", progress=False)
    yield iter(pack)
    yield pack.iter_step_batches(2)
    yield pack.iter_batches(2)
    yield pack[0]
    yield pack[0].meta
    saved = next(saved for saved in a2store.queries() if saved.parameters and saved.columns)
    yield saved
    yield saved.parameters[0]
    yield saved.columns[0]
    yield a2store.functions()[0]
    recorder = selfplay.Recorder("recorded", tag="v1")
    yield recorder
    yield recorder.begin()
    yield recorder.stats()
    player = selfplay.Player(depth=0)
    yield player
    yield selfplay.play(player, 1, progress=False)
    yield recorder.close()
    yield selfplay.VectorEnv(1)
    yield importlib.import_module("a2store.selfplay.gym").GymVectorEnv(1)
    torch = importlib.import_module("a2store.torch")
    yield torch.StepDataset(table)
    yield torch.StepLoader(table)
    critic = importlib.import_module("a2store.critic")
    data = critic.CriticData("session", 64, thresholds=(128, 256))
    yield data
    transformer = critic.BoardTransformer(8, 1, 1)
    yield transformer
    yield critic.CriticHead(8)
    yield critic.TokenCritic(transformer, critic.CriticHead(8))
    yield critic.embed_session("session", lambda tokens: tokens.astype("f4"), dtype="f32", progress=False)
    config = importlib.import_module("a2store.critic.config")
    made = config.Config(
        data=config.Data(source="session", thresholds=(128, 256), max_steps_per_run=2, batch_size=8),
        model=config.Model(encoder="one-hot"),
        optim=config.Optim(epochs=1),
        run=config.Run(out="critic", device="cpu"),
    )
    yield from (made, made.data, made.model, made.optim, made.run)
    yield critic.fit(made, quiet=True)


def test_every_class_has_a_repr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "gymnasium"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    made = list(make(tmp_path))
    assert {type(value) for value in made} == public_classes()
    for value in made:
        text, name = repr(value), type(value).__name__
        assert text.startswith(name), text
        assert not re.search(r" object at 0x|<a2store", text), text
        assert len(text.splitlines()) == 1 or isinstance(value, importlib.import_module("torch").nn.Module), text
    print(f"{len(made)} classes")


def test_times_are_datetimes(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    archive = a2store.Archive.create(tmp_path / "games.a2")
    time = archive.history()[0].time
    assert type(time) is datetime
    assert time.tzinfo is UTC
    assert before <= time <= datetime.now(UTC)
    assert time.microsecond % 1000 == 0
    rows = archive.sql("SELECT CAST($t AS TIMESTAMP) <= now() AS past", {"t": time}).to_arrow().to_pylist()
    assert rows == [{"past": True}]


def test_paths_are_paths(tmp_path: Path) -> None:
    a2store.simulate(tmp_path / "runs", runs=2, seed=1, depth=0, progress=False)
    archive = a2store.Archive.create(str(tmp_path / "games.a2"))
    archive.ingest(str(tmp_path / "runs"), progress=False)
    cut = tmp_path / "cut.a2run2"
    cut.write_bytes((tmp_path / "runs/run-00000.a2run2").read_bytes()[:-9])
    report = archive.ingest(str(cut), progress=False)
    with pytest.raises(a2store.DecodeError) as caught:
        a2store.read_run(str(cut))
    exported = archive.export_runs("SELECT run_id FROM runs", str(tmp_path / "o.dat"), format="packdat", progress=False)
    with pytest.raises(a2store.ArchiveError) as absent:
        a2store.Archive.open(str(tmp_path / "runs"))
    found = [report.errors[0].path, caught.value.path, exported.path, absent.value.path, archive.path]
    assert found == [cut, cut, tmp_path / "o.dat", tmp_path / "runs", tmp_path / "games.a2"]
    assert all(isinstance(path, Path) for path in found)
    with pytest.raises(a2store.Error) as unknown:
        a2store.read_run(b"A2T1")
    assert unknown.value.path is None
