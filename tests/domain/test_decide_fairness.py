"""Attempts that wait for their tenant's cap, and directives that the bus has given up on."""

from __future__ import annotations

import pytest

from lucius.domain.effects import Outcome, PublishDirective
from lucius.domain.inputs import CancelAsked, DirectiveDied, DispatchDue, PublishHeld
from lucius.domain.job import JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepStatus
from lucius.domain.waiting import wait_cause, waiting_on
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, published, result
from lucius.testing.samples import ManualClock

J, S = JobStatus, StepStatus


@pytest.fixture
def held(clock: ManualClock) -> JobScenario:
    clock.is_holding_back = True
    return JobScenario(clock, steps=["ocr", "sis"], deadline_seconds=600)


def is_held(scenario: JobScenario) -> bool:
    attempt = scenario.job.current_step.attempt
    return attempt is not None and attempt.is_held


def test_attempt_is_made_and_not_published(held: JobScenario) -> None:
    assert (held.step, is_held(held), held.last.effects) == (S.DISPATCHING, True, ())
    assert held.job.current_step.due_at is None, "no ack clock runs"
    assert held.job.wake_at == held.job.spec.deadline_at
    waits = waiting_on(held.job)
    assert waits is not None
    assert (wait_cause(held.job), waits.what, waits.until) == ("TENANT_CAP", "TENANT_CAP", held.job.spec.deadline_at)


def test_it_is_published_once_there_is_room(held: JobScenario) -> None:
    assert held.tell(DispatchDue()).outcome is Outcome.IGNORED
    assert held.tell(DispatchDue(force=True)).outcome is Outcome.IGNORED, "an operator's retry does not exceed the cap"
    held.clock.is_holding_back = False
    assert held.tell(DispatchDue()).effects == (PublishDirective(0),)
    assert (is_held(held), wait_cause(held.job)) == (False, "BUS")
    held.tell(published(held.job))
    assert (held.step, held.job.attempts_total) == (S.INITIATED, 1)


def test_next_step_waits_as_well(held: JobScenario) -> None:
    held.clock.is_holding_back = False
    held.tell(DispatchDue(), published(held.job), ack(held.job))
    held.clock.is_holding_back = True
    held.tell(result(held.job))
    assert (held.job.current_step.spec.step_id, is_held(held)) == ("sis", True)


def test_row_whose_publisher_died_waits_if_there_is_no_room(clock: ManualClock) -> None:
    scenario = JobScenario(clock)
    clock.advance(60)
    clock.is_holding_back = True
    decision = scenario.tell(DispatchDue())
    assert (is_held(scenario), decision.effects, scenario.types) == (True, (), ["PUBLISH_HELD"])


def test_cancel_ends_it_at_once(held: JobScenario) -> None:
    held.tell(CancelAsked("op"))
    assert (held.job.status, is_held(held)) == (J.CANCELLED, False)


def test_deadline_ends_it(held: JobScenario) -> None:
    held.wait(600)
    assert held.job.error is not None
    assert (held.job.status, held.job.error.code) == (J.FAILED_FINAL, "DEADLINE_EXCEEDED")


def test_publisher_finds_out_that_there_is_no_room(clock: ManualClock) -> None:
    """As on Temporal."""
    scenario = JobScenario(clock)
    scenario.tell(PublishHeld("ocr", 1))
    assert (is_held(scenario), scenario.types) == (True, ["PUBLISH_HELD"])
    assert scenario.tell(PublishHeld("ocr", 1)).outcome is Outcome.IGNORED
    assert scenario.tell(published(scenario.job)).outcome is Outcome.APPLIED
    assert (scenario.step, is_held(scenario)) == (S.INITIATED, False)
    assert scenario.tell(PublishHeld("ocr", 1)).outcome is Outcome.IGNORED


def test_job_that_is_being_cancelled_is_not_held(clock: ManualClock) -> None:
    scenario = JobScenario(clock)
    scenario.tell(CancelAsked("op"), PublishHeld("ocr", 1))
    assert scenario.job.status is J.CANCELLED


# --- Directives that died --------------------------------------------------------------------------------------------


def test_dead_directive_is_a_missed_ack(clock: ManualClock) -> None:
    scenario = JobScenario(clock, policy=Policy(max_attempts=2))
    scenario.tell(published(scenario.job), DirectiveDied("ocr", 1, "DELIVERED_TOO_OFTEN"))
    assert (scenario.step, scenario.types) == (S.FAILED_RETRY, ["ACK_TIMEOUT"])
    scenario.wait(600)
    scenario.tell(published(scenario.job), DirectiveDied("ocr", 2, "EXPIRED"))
    assert scenario.job.error is not None
    assert (scenario.job.status, scenario.job.error.code) == (J.FAILED_FINAL, "ACK_TIMEOUT")
    assert "EXPIRED" in scenario.job.error.message


def test_dead_directive_that_was_acknowledged_or_is_of_another_attempt_changes_nothing(clock: ManualClock) -> None:
    scenario = JobScenario(clock)
    scenario.tell(published(scenario.job))
    assert scenario.tell(DirectiveDied("ocr", 2, "EXPIRED")).outcome is Outcome.IGNORED
    assert scenario.tell(DirectiveDied("sis", 1, "EXPIRED")).outcome is Outcome.IGNORED
    scenario.tell(ack(scenario.job))
    assert scenario.tell(DirectiveDied("ocr", 1, "EXPIRED")).outcome is Outcome.IGNORED
    assert scenario.step is S.PROCESSING
