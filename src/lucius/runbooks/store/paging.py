"""Statements with a changing condition, and pages by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucius.ports.database import Fetch, Row, Script


class Conditions:
    """A `WHERE` put together from texts of ours; what comes from outside is an argument."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self._texts: list[str] = []

    def add(self, text: str, *values: Any) -> None:
        """`?` stands for the next argument."""
        for value in values:
            self.args.append(value)
            text = text.replace("?", f"${len(self.args)}", 1)
        self._texts.append(text)

    def add_given(self, text: str, value: Any) -> None:
        """The condition, unless the value is None."""
        if value is not None:
            self.add(text, value)

    def fetch(self, select: str, table: str, order: str, limit: int) -> Fetch:
        """A page by id, which `order` begins with. Its ids come first, from an index that holds all that was asked for:
        choosing rows at once, PostgreSQL may walk through the whole table in the hope of meeting them soon."""
        self.args.append(limit)
        where = f" WHERE {' AND '.join(self._texts)}" if self._texts else ""
        id_ = order.split()[0]
        ids = f"SELECT {id_} FROM {table}{where} ORDER BY {order} LIMIT ${len(self.args)}"
        return Fetch(f"{select} WHERE {id_} IN ({ids}) ORDER BY {order}", self.args)


def page(fetch: Fetch, limit: int, id_at: int = 0) -> Script[tuple[list[Row], int | None]]:
    """Rows of a page, and the id from which the next page continues. Fetch with one row more than wanted."""
    rows: Sequence[Row] = yield fetch
    if len(rows) <= limit:
        return list(rows), None
    return list(rows[:limit]), int(rows[limit - 1][id_at])
