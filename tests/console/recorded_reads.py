"""Which statements a page of the console reads with: recorded while it is shown, whatever process-wide loops do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

from lucius.sql.database import Fetch, Run, Script

T = TypeVar("T")

_shown: ContextVar[str | None] = ContextVar("shown", default=None)
"""The page that is being shown by this task, or by those that it started."""


class RecordedReads:
    def __init__(self) -> None:
        self.by_page: dict[str, dict[str, Fetch]] = {}
        """By page, statements with the arguments that they last had."""

    @contextmanager
    def showing(self, page: str) -> Iterator[None]:
        self.by_page.setdefault(page, {})
        token = _shown.set(page)
        yield
        _shown.reset(token)

    def record(self, monkeypatch: pytest.MonkeyPatch, database_class: type[Any]) -> None:
        """Record what databases of this class read from now on."""
        for name in ("read", "scan"):
            original = getattr(database_class, name)

            async def recorded(
                database: Any, script: Callable[[], Script[T]], original: Callable[..., Any] = original
            ) -> T:
                page = _shown.get()
                return await original(database, script if page is None else lambda: self._heard(page, script()))  # type: ignore[no-any-return]

            monkeypatch.setattr(database_class, name, recorded)

    def _heard(self, page: str, script: Script[T]) -> Script[T]:
        rows: Any = None
        while True:
            try:
                statement: Fetch | Run = script.send(rows)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            if isinstance(statement, Fetch):
                self.by_page[page][statement.sql] = statement
            rows = yield statement
