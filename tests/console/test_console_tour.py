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
from typing import Literal

import pytest
from msgspec import Struct
from PIL import Image
from playwright.sync_api import FloatRect
from tests.console import tour_scene
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import ADMIN, Server

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "tour"
WRITES = os.environ.get("LUCIUS_TOUR") == "write"
BYTES_MAX = 1_000_000
"""All pictures together."""
COLOURS = 256
WIDTH, NARROW, HEIGHT_MAX = 1200, 400, 2600


class Picture(Struct, frozen=True):
    page: str
    bottom: str
    """The last thing that is in it."""
    width: int = WIDTH
    colours: Literal["light", "dark"] = "light"


SHOWN = {
    "overview": Picture("overview", "#piece-lanes"),
    "overview-dark": Picture("overview", "#piece-lanes", colours="dark"),
    "job": Picture("job", "#piece-events"),
    "job-narrow": Picture("job", "#piece-state", NARROW),
    "dead-letters": Picture("dead-letters", "#piece-groups"),
    "lanes": Picture("lanes", "#piece-lanes"),
    "tenants": Picture("tenants", "#piece-tenants"),
    "protocol": Picture("protocol", "#piece-figures"),
    "submit": Picture("submit", "fieldset"),
    "runbook": Picture("runbook", "main table"),
    "rehearsal": Picture("rehearsal", "main div:has(> table) >> nth=1"),
    "batch": Picture("batch", "#piece-forecast"),
    "batch-dark": Picture("batch", "#grid", colours="dark"),
    "audit": Picture("audit", "#piece-list"),
}
MARGIN = 12


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
    if WRITES:
        tour_scene.fill_the_last_hour(stage)
    tab = open_tab(ADMIN, url=stage.url)
    for name, picture in SHOWN.items():
        tab.page.emulate_media(color_scheme=picture.colours)
        tab.page.set_viewport_size({"width": picture.width, "height": HEIGHT_MAX})
        tab.go(pages[picture.page])
        if tab.page.locator("#live").count():
            tab.until_live()
        if picture.page == "batch":
            tab.page.wait_for_selector("#grid[data-painted-at]")
        shot = tab.page.screenshot(clip=area(tab, picture))
        assert len(shot) > 10_000, name
        if WRITES:
            PICTURES.mkdir(exist_ok=True)
            few_colours(Image.open(io.BytesIO(shot)).convert("RGB")).save(PICTURES / f"{name}.png", optimize=True)
    assert {picture.page for picture in SHOWN.values()} == set(pages)
    shown = re.findall(r"\(tour/([a-z-]+)\.png\)", (DOCS / "tour.md").read_text())
    assert sorted(shown) == sorted(SHOWN)


def few_colours(picture: Image.Image) -> Image.Image:
    """With the colours that it has most of: shades between them are the edges of letters. A vivid colour counts
    for more: a mark that means something may have a hundred pixels."""

    def weight(counted: tuple[int, tuple[int, ...]]) -> int:
        count, colour = counted
        return count * (1 + max(colour) - min(colour))

    counted = sorted(picture.getcolors(picture.width * picture.height) or (), key=weight, reverse=True)[:COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counted for part in colour])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def area(tab: Tab, picture: Picture) -> FloatRect:
    """From the top of the page to below the last thing that the picture shows."""
    box = tab.page.locator(picture.bottom).first.bounding_box()
    assert box is not None, picture
    bottom = box["y"] + box["height"] + MARGIN
    assert bottom <= HEIGHT_MAX or not WRITES, picture  # What other tests left on their server may be long.
    return {"x": 0, "y": 0, "width": picture.width, "height": min(bottom, HEIGHT_MAX)}


def test_pictures_are_small_and_all_are_shown() -> None:
    pictures = sorted(PICTURES.glob("*"))
    text = (DOCS / "tour.md").read_text()
    assert all(f"(tour/{one.name})" in text for one in pictures)
    assert sum(one.stat().st_size for one in pictures) < BYTES_MAX
