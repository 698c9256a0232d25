"""Cancelling a job whose directive nobody has: it is withdrawn, or the ack deadline ends the wait."""

from __future__ import annotations

import pytest

from lucius.domain.effects import Outcome, SettleDirective
from lucius.domain.inputs import CancelAsked, DeadlinePassed, DirectiveWithdrawn
from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, published, result
from lucius.testing.samples import ManualClock

J, S = JobStatus, StepStatus
WITHDRAWN = DirectiveWithdrawn("ocr", 1)


@pytest.fixture
def scenario(clock: ManualClock) -> JobScenario:
    scenario = JobScenario(clock)
    scenario.tell(published(scenario.job))
    return scenario


def test_withdrawn_directive_ends_a_job_that_is_being_cancelled(scenario: JobScenario) -> None:
    scenario.tell(CancelAsked("op"))
    assert scenario.job.awaits_withdrawal
    scenario.tell(WITHDRAWN)
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.CANCELLED)
    assert scenario.types == ["DIRECTIVE_WITHDRAWN", "JOB_CANCELLED"]


def test_withdrawn_directive_that_somebody_acknowledged_changes_nothing(scenario: JobScenario) -> None:
    """Its lock had run out, and its worker was at work all the same."""
    scenario.tell(CancelAsked("op"), ack(scenario.job))
    assert not scenario.job.awaits_withdrawal
    assert scenario.tell(WITHDRAWN).outcome is Outcome.IGNORED
    scenario.tell(result(scenario.job))
    assert (scenario.job.status, scenario.job.steps[0].status) == (J.CANCELLED, S.SUCCEEDED)


@pytest.mark.parametrize("fact", [DirectiveWithdrawn("ocr", 2), DirectiveWithdrawn("sis", 1)])
def test_withdrawn_directive_of_another_attempt_changes_nothing(
    scenario: JobScenario, fact: DirectiveWithdrawn
) -> None:
    scenario.tell(CancelAsked("op"))
    assert scenario.tell(fact).outcome is Outcome.IGNORED
    assert scenario.job.status is J.CANCELLING


def test_withdrawn_directive_of_a_job_that_nobody_cancelled_changes_nothing(scenario: JobScenario) -> None:
    assert scenario.tell(WITHDRAWN).outcome is Outcome.IGNORED
    assert (scenario.job.status, scenario.step) == (J.IN_PROGRESS, S.INITIATED)


def test_ack_deadline_ends_a_job_that_is_being_cancelled_though_its_directive_is_queued(scenario: JobScenario) -> None:
    scenario.tell(CancelAsked("op"))
    decision = scenario.wait(30, DeadlinePassed(still_queued=True))
    assert scenario.job.status is J.CANCELLED
    assert decision.effects == (SettleDirective(0, 1),)


def test_ack_deadline_moves_on_under_the_rules_that_an_old_job_was_accepted_under(clock: ManualClock) -> None:
    scenario = JobScenario(clock, rules_version=1)
    scenario.tell(published(scenario.job))
    for _ in range(2):
        scenario.wait(30, DeadlinePassed(still_queued=True))
        assert scenario.types == ["STILL_QUEUED"]
    scenario.tell(CancelAsked("op"))
    scenario.wait(30, DeadlinePassed(still_queued=True))
    assert (scenario.job.status, scenario.step) == (J.CANCELLING, S.INITIATED)
