"""Boards and positions, as text and as pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Literal

from ._a2store import _board_svg, _exponents, _write_page

__all__ = ["Board", "Position"]

MOVES = ("up", "down", "left", "right")


@dataclass(frozen=True, repr=False)
class Board:
    """A board that is shown as text in a terminal and as a picture in a notebook.

    - ``board``: the board as a uint64 of sixteen 4-bit exponents.
    - ``tile_65536_mask``: the cells with a tile of 65536, bit ``i`` for cell ``i``.

    Raises ``ValueError`` if a cell of the mask does not have the exponent 15.

    >>> board = a2store.Board(0x1020_0000_0000_00AB)
    >>> print(board)
        2     .     4     .
        .     .     .     .
        .     .     .     .
        .     .  1024  2048
    >>> int(board) == 0x1020_0000_0000_00AB
    True
    """

    board: int
    tile_65536_mask: int = 0

    def __post_init__(self) -> None:
        """Check the board and the mask."""
        _exponents(self.board, self.tile_65536_mask)

    @property
    def tiles(self) -> list[list[int]]:
        """The tiles, row by row: a list of four lists of four integers; 0 = an empty cell."""
        tiles = [2**exp if exp else 0 for exp in _exponents(self.board, self.tile_65536_mask)]
        return [tiles[at : at + 4] for at in range(0, 16, 4)]

    def to_svg(self, size: int = 240, *, colors: Literal["classic", "viridis"] = "classic") -> str:
        """Return the board as SVG.

        - ``size``: the width and height in pixels, in ``1..=10_000``.
        - ``colors``: ``"classic"`` = the colours of the game; ``"viridis"`` = colours ordered by lightness, for
          every kind of colour vision.

        Raises ``ValueError`` for other sizes or colours.

        >>> a2store.Board(0x12).to_svg()[:4]
        '<svg'
        """
        return _board_svg(self.board, self.tile_65536_mask, size, colors)

    def save(self, path: PathLike[str] | str) -> None:
        """Write the board to an SVG file; replace an existing file.

        - ``path``: the file.

        Raises ``OSError`` if the file cannot be written.

        >>> a2store.Board(0x12).save("board.svg")
        """
        _write_page(path, self.to_svg())

    def __index__(self) -> int:
        """Return ``board``."""
        return int(self.board)

    def __str__(self) -> str:
        return "\n".join("".join(f"{tile or '.':>6}" for tile in row)[1:] for row in self.tiles)

    def __repr__(self) -> str:
        mask = f", tile_65536_mask={self.tile_65536_mask}" if self.tile_65536_mask else ""
        return f"Board({self.board:#018x}{mask})"

    def _repr_svg_(self) -> str:
        return self.to_svg()


@dataclass(frozen=True, repr=False, eq=False)
class Position:
    """One position of a run: a board, the values of the four moves, and the move that was played.

    ``print`` and a notebook show the board and a table of the moves.

    - ``step``: the index of the step in its game; ``None`` for the final board.
    - ``board``: the board.
    - ``score``: the score before the move: the sum of the tiles that merges have made. ``None`` = unknown, because an
      earlier step or move is missing, or the game does not begin with one or two tiles of 2 or 4. The score that the
      engine states, ``run.meta.max_score``, may differ, because engines count differently.
    - ``played``: the played move, 0 to 3 in the order UDLR; ``None`` if it is unknown, and for the final board.
    - ``best``: the move with the largest value, 0 to 3; ``None`` without values.
    - ``values``: the engine's values of up, down, left and right; ``None`` for an illegal move or an unknown value.
    - ``loss``: the best value minus the value of the played move; ``None`` if the values or the move are unknown. Raw
      values are normalized first: the least value of the step is 0, and the best value is 1.

    >>> position = a2store.read_run("runs/run-00000.a2run2").position(0)
    >>> position.played, position.best
    (3, 3)
    """

    step: int | None
    board: Board
    score: int | None
    played: int | None
    best: int | None
    values: list[float | None]
    loss: float | None

    def _name(self) -> str:
        return "final board" if self.step is None else f"step {self.step}"

    def __repr__(self) -> str:
        board = " / ".join(" ".join(str(tile or ".") for tile in row) for row in self.board.tiles)
        played = "" if self.played is None else f", played {MOVES[self.played]}"
        return f"Position({self._name()}: {board}{played})"

    def _caption(self) -> str:
        return self._name() if self.score is None else f"{self._name()}, score {self.score}"

    def _moves(self) -> Iterator[tuple[str, str, str]]:
        """Return the name, the value and the marks of each move."""
        for move, (name, value) in enumerate(zip(MOVES, self.values, strict=True)):
            marks = [mark for mark, marked in (("played", self.played), ("best", self.best)) if marked == move]
            yield name, "" if value is None else f"{value:.5f}", ", ".join(marks)

    def __str__(self) -> str:
        text = f"{self._caption()}\n\n{self.board}"
        if self.step is None:
            return text
        moves = (f"{name:6}{value:>12}  {marks}".rstrip() for name, value, marks in self._moves())
        return "\n".join([text, "", *moves])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{name}</th><td>{value}</td><td>{marks}</td></tr>" for name, value, marks in self._moves()
        )
        return (
            '<div style="display: flex; gap: 1em; align-items: center">'
            f"{self.board.to_svg()}<table><caption>{self._caption()}</caption>"
            f"<tr><th>move</th><th>value</th><th></th></tr>{rows}</table></div>"
        )


for _name in __all__:
    globals()[_name].__module__ = "a2store"
