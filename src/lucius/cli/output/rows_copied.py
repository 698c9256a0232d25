"""How far an upgrade has come that copies rows: redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from lucius.cli.output.live import redrawn

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAWS_PER_SECOND = 5.0
LINE_SECONDS = 5.0


def rows_copied_line(done: int, total: int) -> str:
    share = 100 if done >= total else 100 * done // total
    return f"{done:,} of {total:,} rows copied ({share} %)"


@contextmanager
def shown_rows_copied() -> Iterator[Callable[[int, int], None]]:
    """What is yielded is told how many rows are copied, and how many there are. Shows nothing if it is never called."""
    line, shown_at = "", time.monotonic()

    def view(width: int, is_redrawn: bool) -> RenderableType:
        return line

    with ExitStack() as stack:

        def show(done: int, total: int) -> None:
            nonlocal line, shown_at
            is_first, line = not line, rows_copied_line(done, total)
            if sys.stdout.isatty():
                if is_first:
                    stack.enter_context(redrawn(view, REDRAWS_PER_SECOND))
            elif done >= total or time.monotonic() - shown_at >= LINE_SECONDS:
                shown_at = time.monotonic()
                click.echo(line, err=True)

        yield show
