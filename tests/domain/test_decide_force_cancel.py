"""Force-cancel: the job ends at once, whatever its live attempt does; who asked and why is in the trail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lucius.domain.attempt import DispatchStatus
from lucius.domain.decide import decide
from lucius.domain.effects import CallWebhook, Outcome, SettleDirective
from lucius.domain.inputs import CancelAsked, ForceCancelAsked, PauseAsked
from lucius.domain.job import JobStatus
from lucius.domain.step import StepStatus
from lucius.domain.time import after
from lucius.testing.invariants import check_decision
from lucius.testing.job_scenario import JobScenario
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock

J, S = JobStatus, StepStatus
FORCE = ForceCancelAsked("ann", "the service hangs", "key 1")


@pytest.fixture
def scenario(clock: ManualClock) -> JobScenario:
    return JobScenario(clock, callback_urls={"completed": "https://client.example/done"})


def test_force_cancel_ends_work_under_way_at_once(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job), ack(scenario.job))
    decision = scenario.tell(FORCE)
    assert (decision.outcome, scenario.job.status) == (Outcome.APPLIED, J.CANCELLED)
    assert [step.status for step in scenario.job.steps] == [S.CANCELLED] * 3
    assert scenario.types == ["CANCEL_FORCED", "JOB_CANCELLED"]
    asked = decision.events[0].data
    assert (asked["by"], asked["reason"], asked["idempotency_key"]) == ("ann", "the service hangs", "key 1")
    assert decision.effects == (CallWebhook("https://client.example/done"),)
    assert scenario.job.wake_at is None


def test_force_cancel_ends_a_job_that_is_being_cancelled(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), CancelAsked("op"))
    assert scenario.job.status is J.CANCELLING
    scenario.tell(FORCE)
    assert (scenario.job.status, scenario.types) == (J.CANCELLED, ["CANCEL_FORCED", "JOB_CANCELLED"])


def test_force_cancel_settles_a_directive_that_no_service_has_acknowledged(scenario: JobScenario) -> None:
    scenario.tell(published(scenario.job))
    decision = scenario.tell(FORCE)
    assert SettleDirective(0, 1) in decision.effects
    assert scenario.job.status is J.CANCELLED


def test_force_cancel_closes_a_row_that_is_being_published(scenario: JobScenario) -> None:
    """The process that publishes cannot be stopped; its directive is settled, and no ACK of it is accepted."""
    sent = published(scenario.job)
    scenario.tell(FORCE)
    attempt = scenario.job.steps[0].attempt
    assert attempt is not None
    assert attempt.dispatch is DispatchStatus.FAILED_FINAL
    assert scenario.tell(sent).outcome is Outcome.IGNORED
    decision = scenario.tell(ack(scenario.job))
    assert decision.outcome is Outcome.JOB_TERMINAL
    assert decision.effects == (SettleDirective(0, 1),)


@pytest.mark.parametrize("state", ["waiting", "paused"])
def test_force_cancel_of_a_job_without_live_attempt_is_a_cancel(clock: ManualClock, state: str) -> None:
    scenario = JobScenario(clock, not_before=after(START, 60))
    if state == "paused":
        scenario.tell(PauseAsked("op"))
    scenario.tell(FORCE)
    assert (scenario.job.status, scenario.types) == (J.CANCELLED, ["CANCEL_FORCED", "JOB_CANCELLED"])


def test_result_after_a_force_cancel_is_late_and_other_callbacks_are_refused(scenario: JobScenario) -> None:
    scenario.tell(ack(scenario.job), FORCE)
    job = scenario.job
    assert scenario.tell(heartbeat(job, 0.5)).outcome is Outcome.JOB_TERMINAL
    assert scenario.tell(result(job)).outcome is Outcome.LATE
    assert (scenario.job.status, scenario.types) == (J.CANCELLED, ["RESULT"])


def test_force_cancel_of_a_job_that_has_ended_is_refused(scenario: JobScenario) -> None:
    scenario.tell(FORCE)
    before = scenario.job
    assert scenario.tell(FORCE).outcome is Outcome.JOB_TERMINAL
    assert scenario.job is before


@pytest.mark.parametrize("rules_version", [1, 2, 3])
def test_force_cancel_works_for_jobs_of_every_rules_version(scenario: JobScenario, rules_version: int) -> None:
    scenario.tell(ack(scenario.job))
    job = replace(scenario.job, spec=replace(scenario.job.spec, rules_version=rules_version))
    decision = decide(job, FORCE, scenario.clock.now(), scenario.clock)
    check_decision(job, FORCE, decision, scenario.leases)
    assert decision.job.status is J.CANCELLED
