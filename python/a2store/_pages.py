"""Pages of HTML: the replay of a run, and the report of an archive."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from ._a2store import ArrowBatch, _write_page

__all__ = ["Replay", "Report"]


def _frame(page: str, height: str) -> str:
    """Return a page in a frame, which separates its styles and scripts from those of the notebook."""
    page = page.replace("&", "&amp;").replace('"', "&quot;")
    style = f"width: 100%; height: {height}; border: 0"
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="{style}"></iframe>'


@dataclass(frozen=True, repr=False, eq=False)
class Replay:
    """A page that replays a run.

    - ``page``: the page, which ``to_html`` returns.
    - ``num_positions``: the number of positions of the run.

    >>> a2store.read_run("runs/run-00000.a2run2").replay()
    Replay(647 positions)
    """

    page: str
    num_positions: int

    def to_html(self) -> str:
        """Return the page: HTML that needs no other file and no network.

        >>> a2store.read_run("runs/run-00000.a2run2").replay().to_html()[:15]
        '<!doctype html>'
        """
        return self.page

    def save(self, path: PathLike[str] | str) -> None:
        """Write the page to a file; replace an existing file.

        - ``path``: the file.

        Raises ``OSError`` if the file cannot be written.

        >>> a2store.read_run("runs/run-00000.a2run2").replay().save("replay.html")
        """
        _write_page(path, self.page)

    def __repr__(self) -> str:
        return f"Replay({self.num_positions} positions)"

    def _repr_html_(self) -> str:
        return _frame(self.page, "46rem")


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """A report on an archive: the results of named queries, and a page that shows them.

    A notebook shows the page below the cell.

    - ``archive``: the location of the archive.
    - ``version``: the version of the archive that the report describes.
    - ``data``: the tables behind the page: a dict of ``ArrowBatch`` by the name of the query.
      ``pyarrow.record_batch(...)`` and ``polars.DataFrame(...)`` accept them. A table is absent if its query exceeded
      a limit.
    - ``errors``: the reasons why tables are absent: a dict of texts.
    - ``page``: the page, which ``to_html`` returns.

    >>> report = archive.report()
    >>> report.save("report.html")
    >>> report.version == archive.version, report.errors
    (True, {})
    >>> sorted(report.data)[:4]
    ['archive_summary', 'blunder_rate', 'blunders', 'corner_occupancy']
    >>> pa.record_batch(report.data["tile_reach"]).schema.names[:4]
    ['engine', 'tile', 'num_runs', 'num_reached']
    """

    archive: str
    version: int
    data: dict[str, ArrowBatch]
    errors: dict[str, str]
    page: str

    def save(self, path: PathLike[str] | str) -> None:
        """Write the page to a file; replace an existing file.

        - ``path``: the file.

        Raises ``OSError`` if the file cannot be written.

        >>> archive.report().save("report.html")
        """
        _write_page(path, self.page)

    def to_html(self) -> str:
        """Return the page: HTML that needs no other file and no network.

        >>> archive.report().to_html().startswith("<!doctype html>")
        True
        """
        return self.page

    def __repr__(self) -> str:
        tables = len(self.data) + len(self.errors)
        return f"Report({self.archive}, version {self.version}: {tables} tables)"

    def _repr_html_(self) -> str:
        return _frame(self.page, "80vh")


for _name in __all__:
    globals()[_name].__module__ = "a2store"
