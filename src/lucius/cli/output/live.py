"""A view that is redrawn in place during a wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lucius.cli.output.printing import open_console

if TYPE_CHECKING:
    from rich.console import RenderableType

View = Callable[[int, bool], "RenderableType"]
"""Renders for a width in cells; the flag says whether the view will be redrawn."""


@contextmanager
def redrawn(view: View, redraws_per_second: float) -> Iterator[None]:
    """Redraws the view, and prints it in full at the end, even after an error."""
    from rich.live import Live

    console = open_console()
    try:
        with Live(
            console=console,
            refresh_per_second=redraws_per_second,
            transient=True,
            get_renderable=lambda: view(console.width, True),
        ):
            yield
    finally:
        console.print(view(console.width, False))
