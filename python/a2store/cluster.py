"""Engines that run queries and ingests in many processes or on many machines.

``Query.on`` and ``ingest`` take any executor with ``submit``, as in ``concurrent.futures``, whose workers are
processes: a ``ProcessPoolExecutor``, the ``get_executor()`` of a ``dask.distributed.Client``, or a ``RayExecutor``. The
engine schedules, retries and transports the tasks. Each worker needs the same version of a2store, must be able to read
the archive under the same path or URL, and uses its own credentials. ``storage_options`` of an archive travel with the
tasks.

>>> from concurrent.futures import ProcessPoolExecutor
>>> from multiprocessing import get_context
>>> with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
...     query = archive.sql("SELECT count(*) AS n FROM steps WHERE move = 0").on(executor, tasks=2)
...     query.to_polars().item()
6804
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from . import Archive, ClusterError, IngestReport, Query, __version__
from ._integers import integer

_Result = TypeVar("_Result")

__all__ = ["RayExecutor", "ingest"]


class RayExecutor(Executor):
    """An executor that runs each call as a Ray task.

    - ``num_cpus``: the number of CPUs that a task reserves and uses.
    - ``max_retries``: how often Ray repeats a task whose worker dies.
    - ``options``: more options of ``ray.remote``, such as ``resources`` or ``runtime_env``.

    Raises ``ImportError`` if Ray is not installed. Connect to the cluster with ``ray.init`` first.
    """

    def __init__(self, *, num_cpus: int = 1, max_retries: int = 3, **options: Any) -> None:
        import ray

        self._ray = ray
        self._options = {"num_cpus": num_cpus, "max_retries": max_retries, **options}
        self._remote: dict[Callable[..., Any], Any] = {}

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Start a call on the cluster, and return its future, whose ``cancel`` stops the task.

        - ``fn``, ``args``, ``kwargs``: the function, which the workers must be able to import, and its arguments.
        """
        if fn not in self._remote:
            self._remote[fn] = self._ray.remote(**self._options)(fn)
        task = self._remote[fn].remote(*args, **kwargs)
        future: Future[_Result] = task.future()

        def cancel() -> bool:
            self._ray.cancel(task, force=True)
            return True

        # Ray's own future would not stop the task.
        future.cancel = cancel  # type: ignore[method-assign]
        return future

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self._options.items())
        return f"RayExecutor({', '.join(options)})"

    @property
    def threads(self) -> int:
        """The number of threads of each task."""
        return max(1, int(self._options["num_cpus"]))

    @property
    def workers(self) -> int:
        """The number of tasks that the cluster runs at once."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self.threads)


def _checked(executor: Executor) -> Executor:
    """Return an executor, or raise ``TypeError``."""
    if not callable(getattr(executor, "submit", None)):
        found = type(executor).__name__
        raise TypeError(f"executor: expected an object with submit, as in concurrent.futures, found {found}")
    return executor


class _Engine:
    """An executor as the extension uses it."""

    def __init__(self, executor: Executor, query: Query) -> None:
        self._executor = _checked(executor)
        self._query = query
        self.name = type(executor).__name__
        self.workers = _workers(executor)
        self.threads = int(getattr(executor, "threads", 1))

    @cached_property
    def _pickled(self) -> bytes:
        """One pickle for all tasks. A worker unpickles it after it has compared the versions."""
        return pickle.dumps(self._query)

    def submit(self, task: bytes) -> Future[bytes | Exception]:
        """Start a task of the query."""
        return self._executor.submit(_run, __version__, self._pickled, task, _unique())


def _unique() -> str:
    """Return an argument that no other call has, because Dask runs calls with equal arguments only once."""
    return os.urandom(16).hex()


def _workers(executor: Any) -> int:
    """Return the number of tasks that an executor runs at once."""
    for name in ("workers", "_max_workers"):
        workers = getattr(executor, name, None)
        if isinstance(workers, int):
            return max(1, workers)
    client = getattr(executor, "_client", None)  # Dask's.
    if client is not None:
        return max(1, sum(int(threads) for threads in client.nthreads().values()))
    return os.cpu_count() or 1


def _on(query: Query, executor: Executor, tasks: int | None) -> Query:
    """Return a query whose tasks run on an executor."""
    return query._on(_Engine(executor, query), tasks)


def _check_version(version: str) -> None:
    """Raise an error if this process has another version of a2store than the sender."""
    if version != __version__:
        raise ClusterError(f"{socket.gethostname()}: expected a2store {version}, as at the sender, found {__version__}")


# A query, which is the sender's own bytes by way of its engine, is planned once for all its tasks in this process.
_planned: Callable[[bytes], Query] = lru_cache(maxsize=8)(pickle.loads)


def _run(version: str, query: bytes, task: bytes, _unique: str) -> bytes | Exception:
    """Run a task of a query on a worker. Return its exception, to distinguish it from the engine's exceptions."""
    try:
        _check_version(version)
        return _planned(query)._run_task(task)
    except Exception as error:
        return error


def ingest(
    archive: Archive | str | os.PathLike[str],
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    executor: Executor,
    *,
    tasks: int | None = None,
    **options: Any,
) -> list[IngestReport]:
    """Ingest paths in several tasks, and return a report per task.

    The paths are divided among the tasks. Each task commits its paths as a separate version, in any order. A repeated
    call skips the runs that are already in the archive.

    - ``archive``: the archive, or its path or URL. The workers must be able to write it under the same path or URL. An
      ``Archive`` moves to the newest version.
    - ``paths``: paths or URLs that the workers can read, as in ``Archive.ingest``. A folder is one path.
    - ``executor``: as in ``Query.on``.
    - ``tasks``: the number of tasks, at least 1; ``None`` = one for each worker.
    - ``options``: more arguments of ``Archive.ingest``.

    Raises the first exception of ``Archive.ingest`` on a worker, and ``ClusterError`` if the engine loses a task or
    cannot start it, after all tasks have ended. The runs of the other tasks are in the archive. Raises
    ``KeyboardInterrupt`` on Ctrl-C, and cancels the tasks that have not begun. ``RayExecutor`` also ends running tasks,
    which then add all their runs or none.

    >>> from concurrent.futures import ProcessPoolExecutor
    >>> from multiprocessing import get_context
    >>> with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
    ...     reports = a2store.cluster.ingest(archive, ["runs"], executor)
    >>> [report.duplicates for report in reports]
    [20]
    """
    inputs = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    most = _workers(_checked(executor)) if tasks is None else integer("tasks", tasks, 1)
    count = max(1, min(len(inputs), most))
    if not isinstance(archive, Archive):
        archive = Archive.open(archive)
    pickled, futures = pickle.dumps(archive), []
    reports: list[IngestReport] = []
    failure: Exception | None = None
    try:
        for i in range(count):
            try:
                futures.append(executor.submit(_ingest, __version__, pickled, inputs[i::count], options, _unique()))
            except Exception as error:
                failure = failure or _lost(error)
        for future in futures:
            try:
                outcome = future.result()
            except Exception as error:
                outcome = _lost(error)
            if isinstance(outcome, Exception):
                failure = failure or outcome
            else:
                reports.append(outcome)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    archive.refresh()
    if failure is not None:
        raise failure
    return reports


def _lost(error: Exception) -> ClusterError:
    """Return the error for a part of the paths that the engine lost, or could not start."""
    lost = ClusterError(f"a part of the paths: {type(error).__name__}: {error}")
    lost.__cause__ = error
    return lost


def _ingest(
    version: str, archive: bytes, paths: list[Any], options: dict[str, Any], _unique: str
) -> IngestReport | Exception:
    """Ingest a part of the paths on a worker."""
    try:
        _check_version(version)
        opened: Archive = pickle.loads(archive)  # The sender's own bytes, by way of its engine.
        opened.refresh()
        return opened.ingest(paths, **{"progress": False, **options})
    except Exception as error:
        return error
