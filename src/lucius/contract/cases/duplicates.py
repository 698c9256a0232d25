"""Delivery is at least once: a directive may be redelivered, and the next attempt is not a duplicate."""

from __future__ import annotations

from lucius.contract.case import case
from lucius.contract.cases.delivery import check_one_result
from lucius.contract.exchange import Attempt, ScriptedAnswer, always
from lucius.contract.files import changed, snapshot
from lucius.contract.stage import Stage

WATCHED_SECONDS_MAX = 5.0


@case(
    "duplicate-in-work",
    checks="A directive redelivered while it is in progress is worked on once: one RESULT, or identical ones, and no "
    "file is written after it",
    catches="no check for work in progress",
    why="The bus redelivers when a lock expires before the ACK; two workers on one attempt overwrite each other.",
    remedy="Track running attempts by (jobId, stepId, attempt_no, lease_id), and ignore one that is running.",
    needs_slow_work=True,
)
def duplicate_in_work(stage: Stage) -> None:
    attempt = stage.deliver(work_seconds=1.2)
    stage.reach_work(attempt)
    stage.deliver_again(attempt)
    _check_worked_once(stage, attempt)


@case(
    "duplicate-after-result",
    checks="A directive redelivered after its RESULT is not worked on again: no file changes, and a RESULT that "
    "is sent again is identical",
    catches="a record of running attempts that is dropped when the work ends",
    why="A delivery may be late. Repeated work costs twice, and may change files that a later step already reads.",
    remedy="Remember ended attempts for a while by (jobId, stepId, attempt_no, lease_id), or look for the result in "
    "the workspace before starting.",
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
    # Work that was started again would take as long as the first time.
    took = result.at - attempt.handed_at[0]
    stage.quiet(min(took + 0.8, WATCHED_SECONDS_MAX))
    check_one_result(stage, attempt)
    touched = changed(before, snapshot(attempt.directive))
    happened = f"written again after the RESULT: {', '.join(touched[:3])}"
    stage.check(not touched, "no changes to files after the RESULT was sent", happened)


@case(
    "next-attempt",
    checks="After a RESULT that was answered `409 STALE_ATTEMPT`, the next attempt of the same step is worked on "
    "and answered with its own ids",
    catches="duplicates detected by job and step only; an attempt number or lease reused from the first attempt",
    why="A retry is a new attempt of the same job and step; a service that treats it as a duplicate makes retries "
    "useless.",
    remedy="Two deliveries are duplicates only if jobId, stepId, attempt_no and lease_id are all equal.",
)
def next_attempt(stage: Stage) -> None:
    first = stage.deliver(scripts={"RESULT": always(ScriptedAnswer(409, "STALE_ATTEMPT"))})
    stage.expect(first, "RESULT")
    stage.expect_end(stage.deliver_next(first))


@case(
    "next-attempt-in-work",
    checks="The next attempt arrives while the previous one, whose lease expired, is still running: it is worked on "
    "and answered with its own ids",
    catches="a step that counts as busy, so its next attempt is dropped",
    why="This happens after a lease has expired; only the newest attempt can end the step.",
    remedy="Work on the new attempt. The old one stops when its next callback is answered 409.",
    needs_slow_work=True,
)
def next_attempt_in_work(stage: Stage) -> None:
    first = stage.deliver(work_seconds=3.0, lease_seconds=1.5)
    stage.reach_work(first)
    stage.expect_end(stage.deliver_next(first))
