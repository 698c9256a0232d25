"""When a step last made progress: a heartbeat that repeats the last one is not progress."""

from __future__ import annotations

import pytest

from lucius.domain.attempt import Verdict
from lucius.domain.time import after, iso
from lucius.domain.waiting import waiting_on
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock


@pytest.fixture
def scenario(clock: ManualClock) -> JobScenario:
    scenario = JobScenario(clock)
    scenario.tell(published(scenario.job))
    clock.advance(5)
    scenario.tell(ack(scenario.job))
    return scenario


def beat(scenario: JobScenario, seconds: float, progress: float | None = None, note: str | None = None) -> None:
    scenario.clock.advance(seconds)
    scenario.tell(heartbeat(scenario.job, progress, note))


def test_heartbeat_with_new_progress_or_note_is_progress(scenario: JobScenario) -> None:
    step = scenario.job.current_step
    assert step.progress_at is None
    for seconds, progress, note, at in (
        (10, 0.0, None, None),
        (10, 0.25, "page 1", 25),
        (10, 0.25, "page 1", 25),
        (10, None, None, 25),
        (10, 0.25, "page 2", 55),
        (10, 0.3, "page 2", 65),
        (10, 0.3, "page 2", 65),
    ):
        beat(scenario, seconds, progress, note)
        assert scenario.job.current_step.progress_at == (None if at is None else after(START, at))


def test_next_attempt_begins_without_progress(scenario: JobScenario) -> None:
    beat(scenario, 1, 0.5)
    scenario.tell(result(scenario.job, Verdict.FAILED))
    scenario.wait(100)
    assert scenario.job.current_step.attempt_no == 2
    assert scenario.job.current_step.progress_at is None


def test_wait_for_a_result_tells_when_the_work_began_and_when_it_last_made_progress(scenario: JobScenario) -> None:
    for _ in range(3):
        beat(scenario, 60, 0.0, "")
    waits = waiting_on(scenario.job)
    assert waits is not None
    assert (waits.what, waits.since, waits.progress_at) == ("RESULT", after(START, 5), None)
    assert f"it began at {iso(after(START, 5))} and has reported no progress" in waits.sentence
    beat(scenario, 60, 0.5)
    beat(scenario, 60, 0.5)
    waits = waiting_on(scenario.job)
    assert waits is not None
    assert (waits.since, waits.progress_at) == (after(START, 5), after(START, 245))
    assert "(50% done)" in waits.sentence
    assert f"its last progress was at {iso(after(START, 245))}" in waits.sentence
