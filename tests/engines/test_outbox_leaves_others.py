"""The outbox engine touches no job that another engine drives."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.buses.memory import MemoryBus
from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.decide import decide
from lucius.domain.directive import CallbackUrls
from lucius.domain.errors import InfrastructureError
from lucius.domain.inputs import CancelAsked
from lucius.domain.job import TEMPORAL
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import Change, JobFilter
from lucius.ports.observer import Observer
from lucius.testing.samples import ManualClock, accepted


async def test_job_of_another_engine_is_refused_and_left_alone() -> None:
    clock = ManualClock()
    made = decide(None, accepted(clock), clock.now(), clock)
    job = replace(made.job, engine=TEMPORAL, wake_at=0)
    settings = EngineSettings(sweep_interval=0.01, outbox_retry_interval=0.01, repair_interval=0.01)
    async with MemoryLedger() as ledger, MemoryBus(SystemClock()) as bus:
        await ledger.commit([Change(before=None, after=job, events=made.events)])
        signer, urls = TokenSigner((CallbackKey("k1", b"secret"),)), CallbackUrls.under("http://127.0.0.1")
        async with OutboxEngine(ledger, bus, SystemClock(), signer, urls, Observer(), settings) as engine:
            with pytest.raises(InfrastructureError, match="LUCIUS_ENGINE=temporal"):
                await engine.tell(job.job_id, None, CancelAsked("operator"))
            assert (await engine.retry_outbox()).retried == 0
        [kept] = (await ledger.load([job.job_id])).values()
        assert kept == replace(job, revision=1)
        assert [one.job_id for one in await ledger.jobs(JobFilter(open_on=TEMPORAL), 10, None)] == [job.job_id]
