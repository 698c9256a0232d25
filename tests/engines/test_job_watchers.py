"""Waiting for a job's change counts from the call on: what happens before it is awaited is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from lucius.domain.attempt import Verdict
from lucius.domain.job import Job
from lucius.engines.job_watchers import JobWatchers
from lucius.sql.wakeups import Wakeups
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import result
from lucius.testing.samples import ManualClock

PATIENCE_SECONDS = 20.0
SHORT_SECONDS = 0.01


@pytest.fixture
def jobs(clock: ManualClock) -> tuple[Job, Job]:
    """A job at work, and the same job when it has ended."""
    scenario = JobScenario(clock, steps=["ocr"])
    at_work = scenario.job
    scenario.tell(result(at_work, Verdict.SUCCEEDED))
    assert scenario.job.is_terminal
    return at_work, scenario.job


async def test_a_change_between_the_call_and_the_await_ends_the_wait(jobs: tuple[Job, Job]) -> None:
    watchers, (job, _) = JobWatchers(), jobs
    waiting = watchers.wait(job.job_id, PATIENCE_SECONDS, False)
    watchers.notify(job)
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        assert await waiting is True


async def test_a_change_before_the_call_does_not_count(jobs: tuple[Job, Job]) -> None:
    watchers, (job, _) = JobWatchers(), jobs
    watchers.notify(job)
    assert await watchers.wait(job.job_id, SHORT_SECONDS, False) is False


async def test_the_end_is_not_missed_either_and_another_change_does_not_end_its_wait(jobs: tuple[Job, Job]) -> None:
    watchers, (job, ended) = JobWatchers(), jobs
    waiting = watchers.wait(job.job_id, PATIENCE_SECONDS, True)
    watchers.notify(job)
    await asyncio.sleep(0)
    assert not waiting.done()
    watchers.notify(ended)
    async with asyncio.timeout(PATIENCE_SECONDS / 2):
        assert await waiting is True


async def test_a_wait_that_nobody_wants_any_more_is_forgotten(jobs: tuple[Job, Job]) -> None:
    watchers, (job, _) = JobWatchers(), jobs
    waits = [watchers.wait(job.job_id, PATIENCE_SECONDS, until_ended) for until_ended in (False, True)]
    for waiting in waits:
        waiting.cancel()
    await asyncio.sleep(0)
    assert watchers._by_job == {}
    watchers.notify(job)


class Told(Wakeups):
    """What one process tells is what another one hears."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._wakes: dict[str, Callable[[str], object]] = {}
        self._wake_all: list[Callable[[], None]] = []

    def tell(self, names: Iterable[str]) -> None:
        self.names.extend(names)

    def listen(self, kind: str, wake: Callable[[str], object], wake_all: Callable[[], None]) -> Callable[[], None]:
        self._wakes[kind] = wake
        self._wake_all.append(wake_all)
        return lambda: None

    def hear(self, name: str) -> None:
        self._wakes[name[0]](name[1:])

    def hear_all(self) -> None:
        for wake_all in self._wake_all:
            wake_all()


async def test_another_process_that_is_told_of_an_end_ends_both_waits_and_of_a_change_only_one(
    jobs: tuple[Job, Job],
) -> None:
    job, ended = jobs
    here, there = Told(), Told()
    JobWatchers(there).notify(job)
    JobWatchers(there).notify(ended)
    changed_name, ended_name = there.names
    watchers = JobWatchers(here)
    watchers.listen()
    change = watchers.wait(job.job_id, PATIENCE_SECONDS, False)
    end = watchers.wait(job.job_id, PATIENCE_SECONDS, True)
    other = watchers.wait("another job", PATIENCE_SECONDS, False)
    here.hear(changed_name)
    assert (change.done(), end.done()) == (True, False)
    here.hear(ended_name)
    assert (end.done(), other.done()) == (True, False)
    here.hear_all()
    assert other.done()
    await asyncio.sleep(0)
    assert watchers._by_hash == {}
