"""Lanes over time, in SQL: one row a minute."""

from __future__ import annotations

import msgspec

from lucius.ports.lane_samples import LaneSample
from lucius.sql.database import Database, Fetch, Run, Script

ADD = "INSERT INTO lane_samples (minute, oldest_seconds) VALUES ($1, $2) ON CONFLICT (minute) DO NOTHING"
EXPIRE = "DELETE FROM lane_samples WHERE minute < $1"
SINCE = "SELECT minute, oldest_seconds FROM lane_samples WHERE minute >= $1 ORDER BY minute LIMIT 1000"


class SqlLaneSamples:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, sample: LaneSample, oldest_minute: int) -> None:
        def script() -> Script[None]:
            yield Run(ADD, [(sample.minute, msgspec.json.encode(sample.oldest_seconds).decode())])
            yield Run(EXPIRE, [(oldest_minute,)])

        await self._database.write(script)

    async def since(self, minute: int) -> list[LaneSample]:
        def script() -> Script[list[LaneSample]]:
            found = yield Fetch(SINCE, [minute])
            return [LaneSample(at, msgspec.json.decode(text, type=tuple[float, ...])) for at, text in found]

        return await self._database.read(script)
