"""Lanes over time, on Azure Tables: one row a minute, in one partition."""

from __future__ import annotations

import json
from typing import Any

from lucius.azure.keys import key, prefix_end
from lucius.azure.tables import Delete, Insert, Row, Table, TableConflict, TableNotFound
from lucius.ledgers.tables.operators_table import LANES, is_missing_table, unavailable
from lucius.ports.lane_samples import LaneSample

MINUTE = "minute"
MINUTE_DIGITS = 10
READ_MAX = 1_000


class TablesLaneSamples:
    def __init__(self, table: Table) -> None:
        self._table = table

    async def add(self, sample: LaneSample, oldest_minute: int) -> None:
        values: dict[str, Any] = {"minute": sample.minute, "oldest_seconds": json.dumps(sample.oldest_seconds)}
        with unavailable():
            try:
                await self._table.write(LANES, [Insert(_key(sample.minute), values)])
            except TableConflict:
                return  # Another process has taken this minute's sample.
            for row in await self._table.rows(LANES, key(MINUTE, ""), _key(oldest_minute), limit=READ_MAX):
                await self._delete(row)

    async def since(self, minute: int) -> list[LaneSample]:
        with unavailable():
            rows = await self._table.rows(LANES, _key(minute), prefix_end(MINUTE), limit=READ_MAX)
        return [LaneSample(int(row.values["minute"]), tuple(json.loads(row.values["oldest_seconds"]))) for row in rows]

    async def _delete(self, row: Row) -> None:
        try:
            await self._table.write(LANES, [Delete(row.key)])
        except TableNotFound as error:
            if is_missing_table(error):
                raise


def _key(minute: int) -> str:
    return key(MINUTE, f"{max(minute, 0):0{MINUTE_DIGITS}d}")
