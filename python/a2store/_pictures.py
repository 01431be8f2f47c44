"""Boards as frames of a GIF, drawn by Pillow."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image, ImageFont

FRAME = "#a59a8e"
FEWEST_SECONDS = 0.02
"""Browsers show shorter frames for a tenth of a second."""


def animated_gif(boards: list[bytes], colors: list[tuple[str, str]], size: int, seconds: float) -> bytes:
    """Return an endless GIF. A board is sixteen exponents; a color is that of a tile and that of its number."""
    from PIL import ImageFont

    # Longer numbers have smaller digits, so that 65,536 fits its tile.
    shares = {1: 0.1, 2: 0.1, 3: 0.085, 4: 0.068, 5: 0.055}
    fonts = {digits: ImageFont.load_default(size * share) for digits, share in shares.items()}
    frames = [_frame(board, colors, size, fonts) for board in boards]
    file = BytesIO()
    duration = round(max(seconds, FEWEST_SECONDS) * 1000)
    frames[0].save(file, "gif", save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=False)
    return file.getvalue()


def _frame(
    board: bytes,
    colors: list[tuple[str, str]],
    size: int,
    fonts: dict[int, ImageFont.FreeTypeFont | ImageFont.ImageFont],
) -> Image.Image:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (size, size), FRAME)
    draw = ImageDraw.Draw(image)
    gap = size / 41
    cell = (size - 5 * gap) / 4
    for row, exponents in enumerate(board[at : at + 4] for at in range(0, 16, 4)):
        for column, exp in enumerate(exponents):
            left, top = gap + column * (cell + gap), gap + row * (cell + gap)
            back, front = colors[exp]
            draw.rounded_rectangle((left, top, left + cell, top + cell), radius=size / 60, fill=back)
            if exp > 0:
                text = str(2**exp)
                draw.text((left + cell / 2, top + cell / 2), text, fill=front, font=fonts[len(text)], anchor="mm")
    # Each frame has its own 64 colors: those of the tiles, and shades between them at the edges of digits.
    return image.quantize(64, dither=Image.Dither.NONE)
