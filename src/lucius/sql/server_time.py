"""What time it is on the database's server."""

from __future__ import annotations

import time

from lucius.ports.clock import TimeReading
from lucius.sql.database import Database, Fetch, Script

READINGS = 3
"""The one whose answer came fastest counts."""

SERVER_TIME = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"


async def read_server_time(database: Database) -> TimeReading:
    """Raises `DatabaseUnavailable`. Only for a database that is shared: another has the machine's own clock."""
    return await database.read(_best_reading)


def _best_reading() -> Script[TimeReading]:
    readings = []
    for _ in range(READINGS):
        asked_at = time.monotonic()
        rows = yield Fetch(SERVER_TIME)
        answered_at = time.monotonic()
        # Half of the way there and back; the millisecond is what the server's answer was rounded by.
        error_seconds = (answered_at - asked_at) / 2 + 0.001
        readings.append(TimeReading(int(rows[0][0]), (asked_at + answered_at) / 2, error_seconds))
    return min(readings, key=lambda reading: reading.error_seconds)
