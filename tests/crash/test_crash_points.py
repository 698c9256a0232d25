"""The process dies at every point of a turn, one after another; its successor on the same file brings all to an end.

The points are before a transaction, after each of its statements, after its commit and before anybody hears of it, and
before and after a publish or a settle on a bus outside the database. The time is the test's own, so nothing is waited
for; how many points there are is found out by a life that meets no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from tests.crash.mortal import Fate, MortalBus, MortalDatabase

from lucius.buses.memory import MemoryBus
from lucius.buses.sql import JournaledBus
from lucius.domain.attempt import Failure, Verdict
from lucius.domain.callbacks import CallbackKey, TokenSigner
from lucius.domain.directive import CallbackUrls
from lucius.domain.effects import Outcome
from lucius.domain.inputs import Acked, Resulted
from lucius.domain.job import Job, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.routing import LANE_TOPICS
from lucius.engines.outbox.engine import EngineSettings, OutboxEngine
from lucius.ledgers.sql import SqlLedger
from lucius.ports.bus import Bus, Subscription
from lucius.ports.engine import NewJob, Started
from lucius.ports.ledger import Duplicate, Ledger
from lucius.ports.observer import Observer
from lucius.sql.schema import upgrade
from lucius.sql.sqlite import SqliteDatabase
from lucius.testing.invariants import check_ledger
from lucius.testing.samples import STEP_IDS, ManualClock, new_job

T = TypeVar("T")

SETTINGS = EngineSettings(
    outbox_retry_interval=0.003,
    sweep_interval=0.003,
    repair_interval=3600.0,
    upkeep_interval=3600.0,
    claim_seconds=4.0,
)
POLICY = Policy(max_attempts=3, ack_timeout_seconds=6.0, execution_backoff_seconds=(2.0,), ack_backoff_seconds=(2.0,))
LOOK_SECONDS = 2.0
"""How far the test's own time moves on when there is nothing to do."""
SUBSCRIPTIONS = [
    Subscription(topic=topic, name=service, where={"service": service}) for topic in LANE_TOPICS for service in STEP_IDS
]
BUSES = ("sql", "memory that dies too", "memory that lives on")
LOOKS_MAX = 2_000


class Life:
    """One process: an engine over a file and a bus, and a worker's and a client's moves."""

    def __init__(self, engine: OutboxEngine, ledger: Ledger, bus: Bus, clock: ManualClock, fate: Fate) -> None:
        self.engine = engine
        self.ledger = ledger
        self.bus = bus
        self.clock = clock
        self.fate = fate
        self.answered: list[tuple[str, Any, Outcome]] = []

    async def submit(self, new: NewJob) -> Started | Duplicate:
        answer = await self.engine.submit(new)
        assert isinstance(answer, Started | Duplicate), answer
        return answer

    async def tell(self, body: dict[str, Any], fact: Acked | Resulted) -> Outcome:
        told = await self.engine.tell(body["jobId"], None, fact)
        assert told is not None, f"there is no job {body['jobId']}"
        self.answered.append((body["jobId"], fact, told.outcome))
        return told.outcome

    async def work(self, fails_once: set[str]) -> bool:
        """Do what is there to be done, ACK and RESULT together; whether there was anything."""
        found = False
        for service in STEP_IDS:
            for delivery in await self.bus.receive(LANE_TOPICS, service, 10, 30.0, 0.0):
                found = True
                body = msgspec.json.decode(delivery.body)
                about = body["stepId"], body["attempt_no"], body["lease_id"]
                verdict, error = Verdict.SUCCEEDED, None
                if body["jobId"] in fails_once and body["attempt_no"] == 1:
                    verdict, error = Verdict.FAILED, Failure("TEST", "as agreed")
                await asyncio.gather(
                    self.tell(body, Acked(*about)), self.tell(body, Resulted(*about, verdict, error=error))
                )
        return found

    async def finish(self, jobs: list[NewJob], fails_once: set[str]) -> None:
        """Until all have ended: what is there is done, and where nothing is, time passes."""
        for _ in range(LOOKS_MAX):
            if not await self.work(fails_once):
                found = await self.ledger.load([new.fact.spec.job_id for new in jobs])
                if len(found) == len(jobs) and all(job.is_terminal for job in found.values()):
                    return
                self.clock.advance(LOOK_SECONDS)
                await asyncio.sleep(0.004)
        raise AssertionError(f"not ended: {[(job.status, job.current_step) for job in found.values()]}")


@asynccontextmanager
async def _life(path: Path, clock: ManualClock, bus_kind: str, kept: MemoryBus, fate: Fate) -> AsyncIterator[Life]:
    async with SqliteDatabase(path) as file:
        await upgrade(file)
        database = MortalDatabase(file, fate, dies_inside=bus_kind == "sql")
        bus: Any
        if bus_kind == "sql":
            bus = await JournaledBus(database, clock).__aenter__()
            await JournaledBus(file, clock).declare(SUBSCRIPTIONS)
            await bus._load()
            ledger = SqlLedger(database, bus)
        else:
            inside = MemoryBus(clock) if bus_kind == "memory that dies too" else kept
            await inside.declare(SUBSCRIPTIONS)
            bus, ledger = MortalBus(inside, fate), SqlLedger(database)
        signer = TokenSigner((CallbackKey("k1", b"secret"),))
        urls = CallbackUrls.under("http://127.0.0.1")
        engine = OutboxEngine(ledger, bus, clock, signer, urls, Observer(), SETTINGS)
        await engine.__aenter__()
        try:
            yield Life(engine, ledger, bus, clock, fate)
        finally:
            await _kill(engine)


async def _kill(engine: OutboxEngine) -> None:
    """Everything the engine runs is gone at once."""
    left = {*engine._tasks, *engine._loops, *engine._turns._running}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.05)


async def _or_death(fate: Fate, story: Awaitable[T]) -> None:
    """Let a story go on until it ends or the process does."""
    told = asyncio.ensure_future(story)
    death = asyncio.ensure_future(fate.died.wait())
    await asyncio.wait({told, death}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    if told.done() and not fate.died.is_set():
        told.result()
    for task in (told, death):
        task.cancel()
    await asyncio.gather(told, death, return_exceptions=True)


async def _live_and_die(folder: Path, bus_kind: str, ends_at: int | None) -> Fate:
    """A life that ends at this point, and one after it that must set everything right."""
    folder.mkdir()
    clock, fate = ManualClock(), Fate(ends_at)
    kept = MemoryBus(clock)
    jobs = [new_job(clock, key=f"job {place}", policy=POLICY, steps=STEP_IDS[: 3 - 2 * place]) for place in range(2)]
    fails_once = {jobs[1].fact.spec.job_id}
    accepted: list[str] = []

    async def story(life: Life) -> None:
        for new in jobs:
            accepted.append((await life.submit(new)).job_id)
        await life.finish(jobs, fails_once)

    async with _life(folder / "lucius.db", clock, bus_kind, kept, fate) as first:
        await _or_death(fate, story(first))
    async with _life(folder / "lucius.db", clock, bus_kind, kept, Fate(None)) as second:
        for new in jobs:
            # The client sends its commands again, under the same claims but, as a server would, with fresh job ids.
            answer = await second.submit(
                new_job(clock, key=new.fact.spec.idempotency_key, policy=POLICY, steps=["ocr"])
            )
            known = new.fact.spec.job_id
            if known in accepted:
                assert isinstance(answer, Duplicate), f"the answer to job {known} is lost"
                assert answer.job_id == known
            elif isinstance(answer, Started):
                jobs = [renamed(one, answer.job_id) if one is new else one for one in jobs]
        await second.finish(jobs, fails_once)
        found = await check_ledger(second.ledger)
        assert len(found) == 2, "one accepted command, one job"
        for job in found:
            await _check_job(second.ledger, job, first.answered + second.answered)
        assert await second.ledger.inflight() == {}
    return fate


def renamed(new: NewJob, job_id: str) -> NewJob:
    fact = msgspec.structs.replace(new.fact, spec=msgspec.structs.replace(new.fact.spec, job_id=job_id))
    return msgspec.structs.replace(new, fact=fact)


async def _check_job(ledger: Ledger, job: Job, answered: list[tuple[str, Any, Outcome]]) -> None:
    assert job.status is JobStatus.SUCCEEDED, job
    events = await ledger.events(job.job_id, 0, 500)
    results = [
        (event.step_id, event.attempt_no, event.data["verdict"])
        for event in events
        if event.type == "RESULT" and event.data["outcome"] == "APPLIED"
    ]
    for step in job.steps:
        accepted = [one for one in results if one[0] == step.spec.step_id and one[2] == "SUCCEEDED"]
        assert accepted == [(step.spec.step_id, step.attempt_no, "SUCCEEDED")], "one accepted result"
    for job_id, fact, outcome in answered:
        if job_id == job.job_id and isinstance(fact, Resulted) and outcome is Outcome.APPLIED:
            assert (fact.step_id, fact.attempt_no, fact.verdict) in results, "answered, and yet not in the ledger"


@pytest.mark.parametrize("bus_kind", BUSES)
async def test_death_at_any_point_of_a_turn_loses_and_doubles_nothing(tmp_path: Path, bus_kind: str) -> None:
    whole = await _live_and_die(tmp_path / "whole", bus_kind, None)
    points = whole.passed
    assert not whole.died.is_set()
    assert points.count("after a commit, before anybody hears of it") >= 5
    assert (points.count("after a publish, before it is known") >= 4) is (bus_kind != "sql")
    print(f"{len(points)} points")
    for ends_at in range(len(points)):
        try:
            fate = await _live_and_die(tmp_path / f"life-{ends_at}", bus_kind, ends_at)
        except AssertionError as error:
            raise AssertionError(f"death at point {ends_at}, {points[ends_at]}: {error}") from error
        assert fate.died.is_set() or ends_at > len(points) * 0.8
