"""Why a job waits: one plain sentence for every state, with since when and until when."""

from __future__ import annotations

from typing import Any

import pytest

from lucius.domain.attempt import Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.inputs import CancelAsked, Input, PauseAsked
from lucius.domain.job import Job
from lucius.domain.time import after, iso
from lucius.domain.waiting import WaitingOn, waiting_on
from lucius.testing.ledger_driver import ack, heartbeat, published, result
from lucius.testing.samples import START, ManualClock, accepted


def lived(*moves: str, **wishes: Any) -> Job:
    """A job that went through these moves, one second apart."""
    clock = ManualClock(jitter=0.0)
    job = decide(None, accepted(clock, **wishes), clock.now(), clock).job
    facts: dict[str, Any] = {
        "published": published,
        "ack": ack,
        "half": lambda job: heartbeat(job, 0.5),
        "succeed": result,
        "fail": lambda job: result(job, Verdict.FAILED, error=Failure("OOM", "out of memory")),
        "fail for good": lambda job: result(job, Verdict.FAILED, retryable=False),
        "pause": lambda job: PauseAsked("op"),
        "cancel": lambda job: CancelAsked("op"),
    }
    for move in moves:
        clock.advance(1)
        fact: Input = facts[move](job)
        job = decide(job, fact, clock.now(), clock).job
    return job


def waits(job: Job) -> WaitingOn:
    answer = waiting_on(job)
    assert answer is not None
    assert answer.sentence.endswith(".")
    assert answer.sentence[0].isupper()
    if answer.until is not None:
        assert iso(answer.until) in answer.sentence
    return answer


def test_job_waits_for_its_start_time() -> None:
    answer = waits(lived(not_before=after(START, 60)))
    assert (answer.what, answer.since, answer.until) == ("START", START, after(START, 60))


def test_job_waits_for_the_bus() -> None:
    answer = waits(lived())
    assert (answer.what, answer.since) == ("BUS", START)
    assert "attempt 1 of step ocr" in answer.sentence


def test_job_waits_for_an_ack() -> None:
    answer = waits(lived("published"))
    assert (answer.what, answer.since, answer.until) == ("ACK", after(START, 1), after(START, 31))
    assert "lane 14" in answer.sentence


def test_job_waits_for_a_result() -> None:
    answer = waits(lived("published", "ack", "half"))
    assert (answer.what, answer.until) == ("RESULT", after(START, 903))
    assert "50%" in answer.sentence


def test_job_waits_for_a_retry_and_says_why() -> None:
    answer = waits(lived("fail"))
    assert (answer.what, answer.since, answer.until) == ("RETRY", after(START, 1), after(START, 31))
    assert "out of memory" in answer.sentence


def test_paused_job_waits_for_somebody_to_resume_it() -> None:
    job = lived("pause", "succeed")
    answer = waits(job)
    assert (answer.what, answer.until) == ("RESUME", job.spec.deadline_at)
    assert answer.sentence.startswith("Paused since")


def test_paused_job_with_a_live_attempt_waits_for_that() -> None:
    answer = waits(lived("published", "pause"))
    assert answer.what == "ACK"
    assert answer.sentence.startswith("Paused; service ocr")


def test_job_being_cancelled_says_so() -> None:
    answer = waits(lived("ack", "cancel"))
    assert answer.what == "RESULT"
    assert answer.sentence.startswith("Being cancelled; service ocr")


@pytest.mark.parametrize("moves", [("succeed",) * 3, ("fail for good",), ("ack", "cancel", "succeed")])
def test_job_that_has_ended_waits_for_nothing(moves: tuple[str, ...]) -> None:
    job = lived(*moves)
    assert job.is_terminal
    assert waiting_on(job) is None
