"""Delivery is at least once: the same directive may come again, and the next attempt is not the same."""

from __future__ import annotations

from lucius.contract.case import case
from lucius.contract.cases.delivery import check_one_result
from lucius.contract.exchange import Answer, Attempt, always
from lucius.contract.files import changed, snapshot
from lucius.contract.stage import Stage

WATCHED_SECONDS_MAX = 5.0


@case(
    "duplicate-in-work",
    checks="A directive that comes again while it is in work is worked once: one RESULT, or the same again, and no "
    "file is written after it",
    catches="no check for what is in work already",
    why="The bus delivers again when a lock runs out before the ACK; two workers on one attempt overwrite each other.",
    remedy="Keep the attempts in work by (jobId, stepId, attempt_no, lease_id), and pass over one that is there.",
    needs_slow_work=True,
)
def duplicate_in_work(stage: Stage) -> None:
    attempt = stage.deliver(work_seconds=1.2)
    stage.reach_work(attempt)
    stage.deliver_again(attempt)
    _check_worked_once(stage, attempt)


@case(
    "duplicate-after-result",
    checks="A directive that comes again after its RESULT is not worked again: no file changes, and a RESULT that "
    "is sent again is the same",
    catches="a memory of what is in work that forgets when the work ends",
    why="A delivery may be late. Work that is done twice costs twice, and may change what a later step already reads.",
    remedy="Remember ended attempts for a while by (jobId, stepId, attempt_no, lease_id), or look for the result in "
    "the workspace before working.",
)
def duplicate_after_result(stage: Stage) -> None:
    attempt = stage.deliver()
    stage.expect_end(attempt)
    stage.quiet(0.2)
    _check_worked_once(stage, attempt, is_again=True)


def _check_worked_once(stage: Stage, attempt: Attempt, is_again: bool = False) -> None:
    result = stage.expect_end(attempt)
    before = snapshot(attempt.directive)
    if is_again:
        stage.deliver_again(attempt)
    # Work that was begun anew would take as long as it took the first time.
    took = result.at - attempt.handed_at[0]
    stage.quiet(min(took + 0.8, WATCHED_SECONDS_MAX))
    check_one_result(stage, attempt)
    touched = changed(before, snapshot(attempt.directive))
    happened = f"after the RESULT these were written again: {', '.join(touched[:3])}"
    stage.check(not touched, "files that stay as they were when the RESULT was sent", happened)


@case(
    "next-attempt",
    checks="After an attempt whose RESULT was answered `409 STALE_ATTEMPT`, the next attempt of the same step is "
    "worked and answered with its own ids",
    catches="duplicates recognised by job and step alone; an attempt number or lease that is kept from the first time",
    why="A retry is a new attempt of the same job and step; a service that takes it for a duplicate makes retries "
    "useless.",
    remedy="Two deliveries are the same only if jobId, stepId, attempt_no and lease_id all are.",
)
def next_attempt(stage: Stage) -> None:
    first = stage.deliver(scripts={"RESULT": always(Answer(409, "STALE_ATTEMPT"))})
    stage.expect(first, "RESULT")
    stage.expect_end(stage.deliver_next(first))


@case(
    "next-attempt-in-work",
    checks="The next attempt comes while the one before it, whose lease ran out, is still in work: it is worked and "
    "answered with its own ids",
    catches="a step that counts as busy, so that its next attempt is dropped",
    why="This is what happens after a lease has run out; only the newest attempt can end the step.",
    remedy="Work on the new attempt. The old one stops when its next callback is answered 409.",
    needs_slow_work=True,
)
def next_attempt_in_work(stage: Stage) -> None:
    first = stage.deliver(work_seconds=3.0, lease_seconds=1.5)
    stage.reach_work(first)
    stage.expect_end(stage.deliver_next(first))
