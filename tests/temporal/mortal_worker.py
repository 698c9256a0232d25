"""A worker process that ends, as by `kill -9`, right after it has written a job's second attempt to the ledger.

python -m tests.temporal.mortal_worker TEMPORAL_ADDRESS TASK_QUEUE DATABASE_URL
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import msgspec
from tests.temporal.shapes import quick_settings

from lucius.buses.sql import SqlBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.engines.temporal.client import connect
from lucius.engines.temporal.engine import TemporalEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ports.ledger import Change, CommitOutcome
from lucius.ports.observer import Observer
from lucius.sql.postgres import PostgresDatabase


class MortalLedger(SqlLedger):
    async def commit(self, changes: Sequence[Change]) -> list[CommitOutcome]:
        outcomes = await super().commit(changes)
        if any(change.after.attempts_total == 2 for change in changes):
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes


async def work(address: str, task_queue: str, url: str) -> None:
    settings = msgspec.structs.replace(quick_settings(address), task_queue=task_queue, task_seconds=2.0, sandbox=False)
    signer = TokenSigner((CallbackKey("k1", b"secret"),))
    clock = SystemClock()
    async with (
        PostgresDatabase(url, pool_max=4) as database,
        SqlBus(database, clock) as bus,
        TemporalEngine(
            lambda: connect(settings), MortalLedger(database, bus), bus, clock, signer,
            CallbackUrls.under("http://127.0.0.1"), Observer(), settings, works=True, reconciles=False,
        ),
    ):  # fmt: skip
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
