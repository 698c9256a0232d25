"""Why a job waits, or how it ended: every kind of wait that the brain knows, told to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lucius.api.job_views import show_event, show_job, show_step
from lucius.cli.jobs.render import ref_text
from lucius.cli.jobs.why import Explanation, explain, explanation_lines
from lucius.cli.output.formatting import distance
from lucius.domain.attempt import Attempt, Failure, Frame, Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Event
from lucius.domain.inputs import CancelAsked, DeadlinePassed, ForceCancelAsked, PauseAsked
from lucius.domain.time import after, iso
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock, accepted

RAISED = Failure(
    "SERVICE_DEFECT", "KeyError: 'page'", (Frame("service.py", 8, "work"), Frame("pdf.py", 12, "read")), "host.17.ab"
)


def at(seconds: float) -> datetime:
    return datetime.fromisoformat(iso(after(START, seconds))).astimezone(UTC)


def lived(*moves: str, **wishes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A job that went through these moves, a second apart, as the server shows it, with attempts and events."""
    clock = ManualClock(jitter=0.0)
    decision = decide(None, accepted(clock, **wishes), clock.now(), clock)
    facts: dict[str, Any] = {
        "published": published,
        "ack": ack,
        "half": lambda job: heartbeat(job, 0.5),
        "succeed": result,
        "fail": lambda job: result(job, Verdict.FAILED, error=Failure("OOM", "out of memory")),
        "fail for good": lambda job: result(job, Verdict.FAILED, retryable=False, error=Failure("BAD", "no text")),
        "raise": lambda job: result(job, Verdict.FAILED, error=RAISED),
        "raise for good": lambda job: result(job, Verdict.FAILED, error=RAISED, retryable=False),
        "pause": lambda job: PauseAsked("op"),
        "cancel": lambda job: CancelAsked("op", "sent by mistake"),
        "force": lambda job: ForceCancelAsked("op", "it hangs"),
        "time runs out": lambda job: DeadlinePassed(),
    }
    attempts: dict[tuple[str, int], Attempt] = {}
    events: list[Event] = list(decision.events)
    for move in moves:
        clock.advance(1)
        if move == "time runs out":
            assert decision.job.wake_at is not None
            clock.set(decision.job.wake_at)
        decision = decide(decision.job, facts[move](decision.job), clock.now(), clock)
        events += decision.events
        attempts |= {(one.spec.step_id, one.attempt_no): one.attempt for one in decision.job.steps if one.attempt}
    job = decision.job
    shown = show_job(job)
    shown["steps"] = [
        show_step(job, step, [one for (step_id, _), one in attempts.items() if step_id == step.spec.step_id])
        for step in job.steps
    ]
    return msgspec.json.decode(msgspec.json.encode(shown)), [show_event(one) for one in events]


def told(job: dict[str, Any], now: datetime, events: list[dict[str, Any]] | None = None) -> tuple[Explanation, str]:
    explanation = explain(job, events or [], now)
    assert all(explanation.sentences)
    return explanation, "\n".join(explanation_lines(explanation))


def test_start_is_waited_for_until_the_time_the_command_named() -> None:
    job, _ = lived(not_before=after(START, 60))
    explanation, text = told(job, at(20))
    assert job["waiting_on"]["what"] == "START"
    assert "is QUEUED, at step ocr (1 of 3), not tried yet." in text
    assert "(20.0 s ago), until " in text
    assert "(in 40.0 s)." in text
    assert "Then its first attempt is sent to service ocr." in text
    assert explanation.commands[0][0] == f"lucius cancel {job['jobId']}"


def test_bus_is_waited_for_until_the_deadline() -> None:
    job, _ = lived()
    _, text = told(job, at(5))
    assert job["waiting_on"]["what"] == "BUS"
    assert "is DISPATCHING, at step ocr (1 of 3), attempt 1." in text
    assert "the job ends FAILED_FINAL with DEADLINE_EXCEEDED" in text
    assert f"({distance(job['deadline_at'], at(5))})" in text


def test_pick_up_is_waited_for_and_lanes_are_where_to_look() -> None:
    job, _ = lived("published")
    explanation, text = told(job, at(11))
    assert job["waiting_on"]["what"] == "ACK"
    assert job["waiting_on"]["sentence"] in text
    assert "(10.0 s ago)" in text
    assert "(in 20.0 s)" in text
    assert "the wait continues" in text
    assert "the step is retried as long as attempts are left" in text
    assert [command for command, _ in explanation.commands] == ["lucius lanes", f"lucius watch {job['jobId']}"]


def test_result_is_waited_for_as_long_as_the_lease_is_extended() -> None:
    job, _ = lived("published", "ack", "half")
    explanation, text = told(job, at(4))
    assert job["waiting_on"]["what"] == "RESULT"
    assert "(50% done)" in text
    assert "Each heartbeat extends that time" in text
    assert explanation.commands == [(f"lucius watch {job['jobId']}", "follows it")]


def test_retry_is_waited_for_with_the_reason() -> None:
    job, _ = lived("published", "ack", "fail")
    explanation, text = told(job, at(4))
    assert job["waiting_on"]["what"] == "RETRY"
    assert "out of memory" in text
    assert "Then attempt 2 is sent to service ocr." in text
    assert "Before that" not in text
    assert f"lucius cancel {job['jobId']}" in text
    assert "lucius lanes" not in [command for command, _ in explanation.commands]


def test_retry_after_nobody_picked_it_up_points_at_the_lanes() -> None:
    job, _ = lived("published", "time runs out")
    explanation, text = told(job, at(32))
    assert job["waiting_on"]["what"] == "RETRY"
    assert "no ACK within 30 s" in text
    assert explanation.commands[0][0] == "lucius lanes"


def test_error_of_an_earlier_attempt_is_told() -> None:
    job, _ = lived("published", "ack", "fail", "time runs out", "published", "ack")
    _, text = told(job, at(43))
    assert job["waiting_on"]["what"] == "RESULT"
    assert "at step ocr (1 of 3), attempt 2." in text
    assert "Before that, attempt 1 failed, 40.0 s ago, with OOM: out of memory" in text


def test_resuming_is_waited_for_and_is_what_to_do() -> None:
    job, _ = lived("pause", "succeed")
    explanation, text = told(job, at(4))
    assert job["waiting_on"]["what"] == "RESUME"
    assert "is PAUSED, at step embedding (2 of 3), not tried yet." in text
    assert "If nobody has resumed it by then, the job ends FAILED_FINAL" in text
    assert explanation.commands[0][0] == f"lucius resume {job['jobId']}"


def test_paused_job_with_an_attempt_under_way_says_both() -> None:
    job, _ = lived("published", "ack", "pause")
    explanation, text = told(job, at(4))
    assert job["waiting_on"]["what"] == "RESULT"
    assert "Paused; service ocr is working" in text
    assert "once the job is resumed" in text
    assert explanation.commands[0][0] == f"lucius resume {job['jobId']}"


def test_job_being_cancelled_says_who_wanted_it() -> None:
    job, events = lived("published", "ack", "cancel")
    explanation, text = told(job, at(4), events)
    assert "Being cancelled; service ocr is working" in text
    assert "the attempt fails, and the job ends CANCELLED." in text
    assert "Cancellation was requested by op, 1.0 s ago: sent by mistake" in text
    cancels = [command for command, _ in explanation.commands if "cancel" in command]
    assert cancels == [f'lucius cancel {job["jobId"]} --force --reason "…"'], "only a forced one does more"


def test_wait_that_should_be_over_asks_who_keeps_the_time() -> None:
    job, _ = lived("published", "ack", "fail")
    until = datetime.fromisoformat(job["waiting_on"]["until"])
    assert "is `lucius up` or `lucius reconciler` running?" not in told(job, until + timedelta(seconds=2))[1]
    assert "is `lucius up` or `lucius reconciler` running?" in told(job, until + timedelta(minutes=2))[1]


def test_success_is_told_with_the_result() -> None:
    job, _ = lived("succeed", "succeed", "succeed")
    explanation, text = told(job, at(63))
    assert f"Job {job['jobId']} ({job['request_type']} of {job['tenant_id']}) succeeded at " in text
    assert "(1 min 00 s ago), 3.0 s after it was accepted." in text
    assert ref_text(job["output_ref"]) in text
    assert explanation.commands == []


def test_final_failure_is_told_with_its_error_and_can_be_redriven() -> None:
    job, _ = lived("published", "ack", "fail", "time runs out", "fail for good")
    explanation, text = told(job, at(100))
    assert "failed permanently at " in text
    assert "It ended at step ocr, attempt 2: BAD: no text" in text
    assert "attempt 1 failed" in text
    assert explanation.commands[0][0] == f"lucius redrive {job['jobId']}"


def test_deadline_is_told_as_the_end_it_is() -> None:
    job, _ = lived("pause", "succeed", "time runs out")
    _, text = told(job, at(8 * 86_400))
    assert "It ended at step embedding: DEADLINE_EXCEEDED: " in text
    assert "The job's deadline passed" in text


def test_cancelled_job_says_who_wanted_it() -> None:
    job, events = lived("published", "ack", "cancel", "succeed")
    explanation, text = told(job, at(10), events)
    assert "was cancelled at " in text
    assert "Cancellation was requested by op, 7.0 s ago: sent by mistake" in text
    assert explanation.commands[0][0] == f"lucius redrive {job['jobId']}"


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"status": "FAILED_FINAL"},
        {"status": "CANCELLED", "steps": None},
        {"status": "SUCCEEDED", "completed_at": "whenever"},
        {"status": "NEW", "waiting_on": {"what": "SOMETHING"}, "steps": [{}], "current_step_id": None},
    ],
)
def test_job_of_another_version_is_explained_as_far_as_it_goes(job: dict[str, Any]) -> None:
    told(job, at(0))


def test_step_that_makes_no_progress_is_told_with_its_age_and_the_way_out() -> None:
    job, _ = lived("published", "ack", "half", "half", "half")
    explanation, text = told(job, at(123))
    assert "The step has been running for 2 min 01 s; its last progress was 2 min 00 s ago." in text
    assert "(2 min 01 s ago), until" in text
    assert explanation.commands[-1][0] == f'lucius cancel {job["jobId"]} --force --reason "…"'
    silent, _ = lived("published", "ack")
    assert "running for 1.0 s, and its service has reported no progress." in told(silent, at(3))[1]


def test_forced_cancellation_is_told_with_who_and_why() -> None:
    job, events = lived("published", "ack", "cancel", "force")
    _, text = told(job, at(10), events)
    assert "Cancellation was forced by op, 6.0 s ago: it hangs" in text


@pytest.mark.parametrize("move", ["raise", "raise for good"])
def test_failure_is_told_with_where_it_was_raised_and_which_instance_ran_it(move: str) -> None:
    job, _ = lived("published", "ack", move)
    _, text = told(job, at(4))
    assert "It was raised at pdf.py:12 in read, service.py:8 in work." in text
    assert "The attempt was run by the instance host.17.ab." in text
