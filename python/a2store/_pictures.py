"""Boards as frames of a GIF, drawn by Pillow."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from ._packages import needed

if TYPE_CHECKING:
    from PIL import Image, ImageFont

SIZE = 240
"""The width of a picture in pixels."""
FRAME = "#a59a8e"


def write_gif(boards: list[bytes], path: Path, seconds: float, colors: list[tuple[str, str]]) -> None:
    """Write an endless GIF. A board is sixteen exponents. Each color is a pair: of the tile, and of its number."""
    # A GIF stores the time of a frame as 16 bits, in hundredths of a second.
    if not 0.02 <= seconds <= 655:
        raise ValueError(f"seconds: expected 0.02 to 655, found {seconds}")
    needed("pillow", "to_gif")
    from PIL import ImageFont

    # Longer numbers have smaller digits, so that 65,536 fits its tile.
    shares = {1: 0.1, 2: 0.1, 3: 0.085, 4: 0.068, 5: 0.055}
    fonts = {digits: ImageFont.load_default(SIZE * share) for digits, share in shares.items()}
    frames = [_frame(board, colors, fonts) for board in boards]
    file = BytesIO()
    frames[0].save(
        file, "gif", save_all=True, append_images=frames[1:], duration=round(seconds * 1000), loop=0, optimize=False
    )
    path.write_bytes(file.getvalue())


def _frame(
    board: bytes, colors: list[tuple[str, str]], fonts: dict[int, ImageFont.FreeTypeFont | ImageFont.ImageFont]
) -> Image.Image:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (SIZE, SIZE), FRAME)
    draw = ImageDraw.Draw(image)
    gap = SIZE / 41
    cell = (SIZE - 5 * gap) / 4
    for row, exponents in enumerate(board[at : at + 4] for at in range(0, 16, 4)):
        for column, exp in enumerate(exponents):
            left, top = gap + column * (cell + gap), gap + row * (cell + gap)
            back, front = colors[exp]
            draw.rounded_rectangle((left, top, left + cell, top + cell), radius=SIZE / 60, fill=back)
            if exp > 0:
                text = str(2**exp)
                draw.text((left + cell / 2, top + cell / 2), text, fill=front, font=fonts[len(text)], anchor="mm")
    # Each frame has its own 64 colors: those of the tiles, and shades between them at the edges of digits.
    return image.quantize(64, dither=Image.Dither.NONE)
