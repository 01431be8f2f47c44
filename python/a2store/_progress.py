"""Progress bars in notebooks."""

from typing import Any

# Work that ends sooner shows no bar.
_DELAY_SECONDS = 0.5


def notebook_bar() -> "NotebookBar | None":
    """Return a progress bar for the running cell, or None if this process is not the kernel of a notebook."""
    from IPython import get_ipython

    shell = get_ipython()
    return NotebookBar() if hasattr(shell, "kernel") else None


class NotebookBar:
    """A progress bar below the cell, as a line of text.

    It is called with the state of the work, as ``a2store`` describes it for functions.
    """

    def __init__(self) -> None:
        self._display: Any = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"NotebookBar({'closed' if self._is_closed else 'open'})"

    def __call__(self, state: dict[str, Any]) -> None:
        if self._is_closed or (self._display is None and state["seconds"] < _DELAY_SECONDS):
            return
        share = min(state["done"] / state["total"], 1.0) if state["total"] else 0.0
        bar = "█" * round(30 * share)
        self._show(f"{state['what']} [{bar:30}] {text(state)}")

    def close(self) -> None:
        """Remove the bar."""
        if self._display is not None:
            self._show("")
        self._is_closed = True

    def _show(self, line: str) -> None:
        try:
            if self._display is None:
                from IPython.display import display

                self._display = display({"text/plain": ""}, raw=True, display_id=True)
            self._display.update({"text/plain": line}, raw=True)
        except Exception:  # A bar that cannot be drawn must not stop the work.
            self._is_closed = True
            self._display = None


def text(state: dict[str, Any]) -> str:
    """Return the counts, the rate and the time left of a state."""
    done, total, seconds, unit = state["done"], state["total"], state["seconds"], state["unit"]
    line = f"{_number(done, unit)}/{_number(total, unit)}" if total else _number(done, unit)
    if unit != "bytes":
        line += f" {unit}"
    if done and seconds > 0:
        rate = done / seconds
        line += f" {_number(int(rate), unit)}/s"
        if total > done:
            minutes, left = divmod(round((total - done) / rate), 60)
            line += f", {minutes}m{left:02}s left" if minutes else f", {left}s left"
    return line


def _number(value: int, unit: str) -> str:
    if unit != "bytes":
        return f"{value:,}"
    for name, size in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value} B"
