"""The screenshots of `docs/tour.md`.

The pages of the tour are opened and pictured in every run. With `LUCIUS_TOUR=write`, this module makes the pictures of
the documentation again, with a server of its own.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.console import tour_scene
from tests.console.console_browser import OpenTab
from tests.console.console_server import ADMIN, Server

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "tour"
WRITES = os.environ.get("LUCIUS_TOUR") == "write"
BYTES_MAX = 1_000_000
"""All pictures together."""
COLOURS = 192
SIZE = {"width": 1200, "height": 760}
TALL = {"batch": 1300, "job": 900}
"""Pages whose point is further down."""


@pytest.fixture
def stage(server: Server, tmp_path: Path) -> Iterator[Server]:
    if not WRITES:
        yield server
        return
    own = Server(tmp_path)
    yield own
    own.stop()


def test_every_page_of_the_tour_can_be_pictured(stage: Server, open_tab: OpenTab) -> None:
    pages = tour_scene.play(stage)
    tab = open_tab(ADMIN, url=stage.url, viewport=SIZE)
    for name, path in pages.items():
        tab.page.set_viewport_size({**SIZE, "height": TALL.get(name, SIZE["height"])})
        tab.go(path)
        if name == "batch":
            tab.page.wait_for_selector("#grid[data-painted-at]")
        picture = tab.page.screenshot()
        assert len(picture) > 10_000, name
        if WRITES:
            PICTURES.mkdir(exist_ok=True)
            few = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
            few.save(PICTURES / f"{name}.png", optimize=True)
    shown = re.findall(r"\(tour/([a-z-]+)\.png\)", (DOCS / "tour.md").read_text())
    assert sorted(shown) == sorted(pages)


def test_pictures_are_small_and_all_are_shown() -> None:
    pictures = sorted(PICTURES.glob("*"))
    text = (DOCS / "tour.md").read_text()
    assert all(f"(tour/{one.name})" in text for one in pictures)
    assert sum(one.stat().st_size for one in pictures) < BYTES_MAX
