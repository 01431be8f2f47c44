"""Terms of the saved queries for both peers: symmetries of boards, and parameters of the questions.

A symmetry moves bit fields of a board: nibbles for cells, sixteen bits for rows.
"""

from __future__ import annotations

INNER, OUTER = 0x00F0_00F0_00F0_00F0, 0x000F_000F_000F_000F  # the right cell of either pair of a row's four cells
INNER_ROW, OUTER_ROW = 0xFFFF_0000, 0xFFFF
# A transpose in two steps: cells within quarters of the board, then quarters. Each line has a shift and the masks of
# the fields that stay, move up and move down.
CELLS = (12, 0xF0F0_0F0F_F0F0_0F0F, 0x0000_F0F0_0000_F0F0, 0x0F0F_0000_0F0F_0000)
QUARTERS = (24, 0xFF00_FF00_00FF_00FF, 0x0000_0000_FF00_FF00, 0x00FF_00FF_0000_0000)
IMAGES = (
    (0, 1, 2, 3),
    (3, 2, 0, 1),
    (1, 0, 3, 2),
    (2, 3, 1, 0),
    (0, 1, 3, 2),
    (1, 0, 2, 3),
    (2, 3, 0, 1),
    (3, 2, 1, 0),
)
"""The images of up, down, left and right under each symmetry.

The symmetries are rotations by 0, 90, 180 and 270 degrees, columns flipped, rows flipped, transposed, anti-transposed.
"""
TILES = [".", *(str(1 << exp) for exp in range(1, 16))]
MID, LATE = 10, 12
MIN_TILE = 11
LIMIT = 100
WIDTH = 1_000
"""The width of a bin of steps."""
SCORES = 10_000
"""The width of a bin of scores."""
Z = 1.959963984540054
"""The quantile of the normal distribution at 97.5 %."""
