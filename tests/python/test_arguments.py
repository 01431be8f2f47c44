"""Integer arguments of the whole public API: a wrong one raises an error of the right type that names the argument.

The functions come from the stub and from the signatures of the Python modules, so a new argument without a call in
``CALLS`` fails the test.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import a2store
import a2store.cluster
import reference
from a2store import selfplay
from archives import simulated

pytestmark = pytest.mark.filterwarnings("ignore:thresholds")
OF_ANOTHER_TYPE = (True, 1.5, "a", np.bool_(True), 1j)
INDICES = {"index", "indices", "steps"}
"""Arguments that are indices: out of range, they raise ``IndexError``, as for a list."""
EXEMPT = {
    "_board_svg": "internal: Board has its public name",
    "_exponents": "internal: Board checks its arguments with it",
    "_Pack": "internal: PackReader checks its own arguments",
    "_permutation": "internal: PackReader checks its own arguments",
    "_row_indices": "internal: PackReader.iter_step_batches has its arguments",
    "_play": "internal: play is its public name",
    "Query._on": "internal: on checks its argument",
    "RayExecutor": "Ray checks its options",
    "_Position": "internal: the loaders check their own arguments",
    "StepTable.__getitem__": "an operator: names and masks are keys too",
    "StepTable.__getitems__": "called by the DataLoader of PyTorch with indices of its sampler",
    "EmbedReport": "a result, not called by users",
    "PlayResult": "a result, not called by users",
    "RecorderStats": "a result, not called by users",
    "TrainReport": "a result, not called by users",
    "config": "load_config checks the options; the constructors do not, and say so",
    "CriticData.highest_tile": "a mapping by run id, which may have any keys",
    "Query.shard": "a pair of integers: see test_shards.py",
    "StepLoader.shard": "a pair of integers: see test_shards.py",
}
"""Functions and arguments without a check, with the reason."""


def annotated() -> Iterator[tuple[str, str, str]]:
    """Return each function with an integer argument, the argument, and its annotation."""
    is_int = re.compile(r"\bint\b|_Indices")

    def of_stub(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from of_stub(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    yield prefix + node.name, arg.arg, "" if arg.annotation is None else ast.unparse(arg.annotation)

    def of_modules() -> Iterator[tuple[str, str, str]]:
        for module_name in [*reference.MODULES][1:]:
            module = importlib.import_module(module_name)
            for name in module.__all__:
                value = getattr(module, name)
                if value.__module__ != "a2store._a2store" and (inspect.isclass(value) or inspect.isfunction(value)):
                    yield from of_value(f"config.{name}" if module_name.endswith(".config") else name, value)

    def of_value(name: str, value: Any) -> Iterator[tuple[str, str, str]]:
        members = (
            [(f"{name}.{member}", getattr(value, member)) for member in vars(value)] if inspect.isclass(value) else []
        )
        for called, function in members or [(name, value)]:
            member = called.rpartition(".")[2]
            if inspect.isroutine(function) and (not member.startswith("_") or member in ("__init__", "__getitem__")):
                for parameter in inspect.signature(function).parameters.values():
                    yield called, parameter.name, str(parameter.annotation)

    of_classes = [*of_value("Board", a2store.Board), *of_value("PackReader", a2store.PackReader)]
    every = [*of_stub(ast.parse(reference.STUB.read_text()).body, ""), *of_classes, *of_modules()]
    yield from (found for found in every if is_int.search(found[2]))


class Made:
    """Objects to call the functions on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.archive = simulated(folder, runs=3, seed=1, depth=0)
        everything = "SELECT run_id FROM runs"
        self.archive.export_runs(everything, folder / "games.a2pack", format="a2pack", progress=False)
        self.archive.export_runs(everything, folder / "session", format="session", progress=False)
        self.pack = a2store.PackReader.open(folder / "games.a2pack")
        self.query = self.archive.sql("SELECT * FROM steps")
        self.table = self.query.materialize(progress=False)
        self.table.save(folder / "table.npy", progress=False)
        self.recorder = selfplay.Recorder(folder / "recorded", tag="v1")
        self.loader = self.table.loader()
        self.env = selfplay.VectorEnv(1)

    def game(self) -> selfplay.Game:
        return self.recorder.begin()


def of_gym(name: str) -> Any:
    return getattr(pytest.importorskip("a2store.selfplay.gym"), name)


def of_torch(name: str) -> Any:
    return getattr(pytest.importorskip("a2store.torch"), name)


def of_critic(name: str) -> Any:
    pytest.importorskip("torch")
    return getattr(importlib.import_module("a2store.critic"), name)


def config(made: Made) -> Any:
    options = importlib.import_module("a2store.critic.config")
    run = options.Run(out=str(made.folder / "critic"), device="cpu")
    return options.Config(data=options.Data(source=str(made.folder / "session")), run=run)


def embedded(made: Made, name: str, source: Any, *args: Any, **more: Any) -> Any:
    return of_critic(name)(source, lambda tokens: tokens.astype("f4"), *args, dtype="f32", progress=False, **more)


def with_ranks(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, with both of ``rank`` and ``world_size`` if one of them is given."""
    return {"rank": 0, "world_size": 1, **given} if {"rank", "world_size"} & given.keys() else given


SQL = "SELECT * FROM steps"
RUNS = "SELECT run_id FROM runs"
LABELS = np.zeros((4, 1))
CALLS: dict[str, Callable[..., object]] = {
    "convert": lambda m, **a: a2store.convert(m.runs, m.folder / "o", format="a2pack", progress=False, **a),
    "PackReader.__getitem__": lambda m, index: m.pack[index],
    "PackReader.decode": lambda m, **a: m.pack.decode(**a),
    "PackReader.decode_batch": lambda m, **a: m.pack.decode_batch(**a),
    "PackReader.kind": lambda m, **a: m.pack.kind(**a),
    "PackReader.iter": lambda m, **a: m.pack.iter(**a),
    "PackReader.iter_indices": lambda m, **a: m.pack.iter_indices(**a),
    "PackReader.iter_step_batches": lambda m, **a: m.pack.iter_step_batches(**{"batch_size": 2, **a}),
    "PackReader.split": lambda m, **a: m.pack.split(**({} if "test_size" in a else {"test_pct": 0.5}), **a),
    "Run.to_gif": lambda m, **a: m.archive.run(0).to_gif(m.folder / "o.gif", **a),
    "Query.head": lambda m, **a: m.query.head(**a),
    "PackReader.iter_batches": lambda m, **a: m.pack.iter_batches(**{"batch_size": 2, **a}),
    "PackReader.to_table": lambda m, **a: m.pack.to_table(**a),
    "PackReader.train_test_split": lambda m, **a: m.pack.train_test_split(**a),
    "PackReader.to_jsonl": lambda m, **a: m.pack.to_jsonl(m.folder / "o.jsonl", progress=False, **a),
    "PackReader.validate": lambda m, **a: m.pack.validate(progress=False, **a),
    "simulate": lambda m, **a: a2store.simulate(m.folder / "o", progress=False, **a),
    "Recorder.__new__": lambda m, **a: selfplay.Recorder(m.folder / "o", tag="v1", **a),
    "Recorder.begin": lambda m, **a: m.recorder.begin(**a),
    "Game.push": lambda m, **a: m.game().push(**{"board": 1, "move": 0, **a}),
    "Game.end": lambda m, **a: m.game().end(**a),
    "Player.__new__": lambda m, **a: selfplay.Player(**a),
    "VectorEnv.__new__": lambda m, **a: selfplay.VectorEnv(**{"num_envs": 1, **a}),
    "VectorEnv.step": lambda m, **a: m.env.step(**a),
    "VectorEnv.reset": lambda m, **a: m.env.reset(**a),
    "Archive.create": lambda m, **a: a2store.Archive.create(m.folder / "o", **a),
    "Archive.open": lambda m, **a: a2store.Archive.open(m.archive.path, **a),
    "Archive.ingest": lambda m, **a: m.archive.ingest(m.runs, progress=False, **a),
    "Archive.restore": lambda m, **a: m.archive.restore(dry_run=True, **a),
    "Archive.tag": lambda m, **a: m.archive.tag("name", **a),
    "Archive.compact": lambda m, **a: m.archive.compact(progress=False, **a),
    "Archive.verify": lambda m, **a: m.archive.verify(progress=False, **a),
    "Archive.sql": lambda m, **a: m.archive.sql(SQL, **a),
    "Archive.run": lambda m, **a: m.archive.run(**a),
    "Archive.query": lambda m, **a: m.archive.query("high_score", **a),
    "Archive.export_runs": lambda m, **a: m.archive.export_runs(
        RUNS, m.folder / "o", format="npy" if "shard_rows" in a else "a2pack", progress=False, **a
    ),
    "open": lambda m, **a: a2store.open(m.archive.path, **a),
    "restore": lambda m, **a: a2store.restore(m.archive.path, dry_run=True, **a),
    "verify": lambda m, **a: a2store.verify(m.archive.path, progress=False, **a),
    "Archive.view": lambda m, **a: m.archive.view(open_browser=False, **a).close(),
    "Run.position": lambda m, **a: m.archive.run(0).position(**a),
    "Run.replay": lambda m, **a: m.archive.run(0).replay(**a),
    "Board.__init__": lambda m, **a: a2store.Board(**{"board": 1, **a}),
    "Board.to_svg": lambda m, **a: a2store.Board(1).to_svg(**a),
    "ingest": lambda m, **a: a2store.cluster.ingest(m.archive, [], ThreadPoolExecutor(1), **a),
    "Query.on": lambda m, **a: m.query.on(ThreadPoolExecutor(1), **a),
    "Query.limit": lambda m, **a: m.query.limit(**a),
    "Query.show": lambda m, **a: m.query.show(**a),
    "Query.materialize": lambda m, **a: m.query.materialize(progress=False, **a),
    "StepTable.take": lambda m, **a: m.table.take(**a),
    "StepTable.filter": lambda m, **a: m.table.filter(**a),
    "StepTable.head": lambda m, **a: m.table.head(**a),
    "StepTable.sample": lambda m, **a: m.table.sample(**{"n": 1, **a}),
    "StepTable.train_test_split": lambda m, **a: m.table.train_test_split(**a),
    "StepTable.split": lambda m, **a: m.table.split(**a),
    "StepTable.load": lambda m, **a: a2store.StepTable.load(m.folder / "table.npy", progress=False, **a),
    "StepTable.from_runs": lambda m, **a: a2store.StepTable.from_runs(m.runs, progress=False, **a),
    "StepTable.from_session": lambda m, **a: a2store.StepTable.from_session(m.folder / "session", progress=False, **a),
    "StepTable.loader": lambda m, **a: m.table.loader(**{"replacement": "num_samples" in a, **a}),
    "mix": lambda m, **a: a2store.mix([(m.table, 1)], **a),
    "Loader.skip_batches": lambda m, **a: m.loader.skip_batches(**a),
    "Loader.set_epoch": lambda m, **a: m.loader.set_epoch(**a),
    "play": lambda m, **a: selfplay.play(selfplay.Player(depth=0), **{"num_games": 1, "progress": False, **a}),
    "GymVectorEnv.__init__": lambda m, **a: of_gym("GymVectorEnv")(**a),
    "GymVectorEnv.reset": lambda m, **a: of_gym("GymVectorEnv")(1).reset(**a),
    "StepLoader.__init__": lambda m, **a: of_torch("StepLoader")(
        m.table, **{"replacement": "num_samples" in a, **with_ranks(a)}
    ),
    "StepLoader.skip_batches": lambda m, **a: of_torch("StepLoader")(m.table).skip_batches(**a),
    "StepLoader.set_epoch": lambda m, **a: of_torch("StepLoader")(m.table).set_epoch(**a),
    "BoardTransformer.__init__": lambda m, **a: of_critic("BoardTransformer")(**a),
    "CriticData.__init__": lambda m, **a: of_critic("CriticData")(m.folder / "session", **with_ranks(a)),
    "CriticData.split": lambda m, **a: of_critic("CriticData")(m.folder / "session").split(**a),
    "CriticData.set_epoch": lambda m, **a: of_critic("CriticData")(m.folder / "session").set_epoch(**a),
    "CriticHead.__init__": lambda m, **a: of_critic("CriticHead")(**{"in_dim": 4, **a}),
    "calibration": lambda m, **a: of_critic("calibration")([0.1], [1], **a),
    "evaluate": lambda m, **a: of_critic("evaluate")(LABELS, LABELS, **{"thresholds": (1024,), **a}),
    "embed": lambda m, **a: embedded(m, "embed", m.table, m.folder / "embedded", **a),
    "fit": lambda m, **a: of_critic("fit")(config(m), quiet=True, **a),
}
"""Each function, called with one argument. Its other arguments are valid."""


def wrong_values(name: str, annotation: str) -> Iterator[tuple[Any, tuple[type[Exception], ...]]]:
    """Return wrong values of an argument, each with the exceptions that are right."""
    outside = IndexError if name in INDICES else ValueError
    # A negative index of a pack counts from the end.
    for number in (-(2**70) if name in INDICES else -1, 2**64, 2**200):
        yield number, (outside,)
    for other in OF_ANOTHER_TYPE:
        if not (isinstance(other, str) and re.search(r"\bstr\b", annotation)):
            yield other, (TypeError,)


def shapes(annotation: str, value: Any) -> Iterator[Any]:
    """Return the value as the annotation has it: alone, in a list, or in a dict."""
    if "dict[" in annotation:
        yield {"mid": value}
        return
    is_list = re.search(r"Sequence|Iterable|_Indices|NDArray", annotation) is not None
    if is_list:
        yield [value]
    if not is_list or re.match(r"int \|", annotation):
        yield value


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def names_of(function: str, argument: str) -> set[str]:
    """Return the names under which an argument may be exempt."""
    owner = function.partition(".")[0]
    return {function, owner, f"{owner}.{argument}"}


FOUND = [*annotated()]
CHECKED = [found for found in FOUND if names_of(found[0], found[1]).isdisjoint(EXEMPT)]


def test_every_function_is_called_or_exempt() -> None:
    assert {function for function, _, _ in CHECKED} == CALLS.keys()
    assert EXEMPT.keys() <= set().union(*(names_of(function, argument) for function, argument, _ in FOUND))
    print(f"{len(CHECKED)} integer arguments of {len(CALLS)} functions")
    assert len(CHECKED) >= 110


@pytest.mark.parametrize(("function", "argument", "annotation"), CHECKED, ids=[f"{f}-{a}" for f, a, _ in CHECKED])
def test_a_wrong_integer_is_named(made: Made, function: str, argument: str, annotation: str) -> None:
    wrong = []
    for value, errors in wrong_values(argument, annotation):
        for shape in shapes(annotation, value):
            text = f"{argument}={shape!r}"
            try:
                CALLS[function](made, **{argument: shape})
            except errors as error:
                # An IndexError names the index, not the list.
                if not re.search(rf"\b(?<!#){argument.rstrip('s')}", str(error)) and not isinstance(error, IndexError):
                    wrong.append(f"{text}: no name in {error!r}")
            except Exception as error:
                wrong.append(f"{text}: {error!r}")
            else:
                wrong.append(f"{text}: accepted")
    assert wrong == []


@pytest.mark.parametrize("params", [{"a": 2**200}, {"a": -(2**70)}, {"a": object()}])
def test_parameters_of_queries_are_named(made: Made, params: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"params: a: expected .*, found "):
        made.archive.sql("SELECT $a", params)
    with pytest.raises((ValueError, TypeError), match=r"min_score: expected .*, found "):
        made.archive.query("high_score", min_score=params["a"])


def test_numpy_integers_are_integers(made: Made) -> None:
    three: Any = np.uint8(3)
    seven: Any = np.int16(7)
    largest: Any = np.uint64(2**64 - 1)
    last: Any = np.int8(-1)
    assert len(made.query.limit(three).to_arrow()) == 3
    assert made.table.loader(seven, seed=largest).batch_size == 7
    assert made.pack.decode(last).meta.num_steps == len(made.pack[-1])
