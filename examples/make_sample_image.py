"""Draws the sample receipt as a PNG, with Pillow: what a scanner would make of a slip of paper.

The file is kept in the repository; run this again only to change its text:

    python examples/make_sample_image.py src/lucius/reference/samples/receipt.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = (760, 560)
LEFT = 40
RIGHT = 720
TOP = 36
LINE_HEIGHT = 62
FONT_SIZE = 34
GREYS = 4
"""Few enough to keep the file small, and enough for smooth letters."""

LINES = [
    ("Harbour Lantern Works", ""),
    ("Receipt number 2047", ""),
    ("Date: 12 May 2025", ""),
    ("Lamp glass, large", "84.00"),
    ("Battery pack", "126.50"),
    ("Delivery to pier nine", "15.00"),
    ("Total in euros", "225.50"),
    ("Paid in cash, thank you", ""),
]


def receipt() -> Image.Image:
    image = Image.new("L", SIZE, 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(FONT_SIZE)
    for number, (text, amount) in enumerate(LINES):
        y = TOP + number * LINE_HEIGHT
        draw.text((LEFT, y), text, font=font, fill=0)
        if amount:
            draw.text((RIGHT - draw.textlength(amount, font=font), y), amount, font=font, fill=0)
    return image.quantize(GREYS)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: make_sample_image.py FILE")
    receipt().save(Path(sys.argv[1]), format="PNG", optimize=True)


if __name__ == "__main__":
    main()
