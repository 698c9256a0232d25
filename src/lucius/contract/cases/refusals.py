"""A RESULT that the server rejects is not repeated forever."""

from __future__ import annotations

from functools import partial

from lucius.contract.case import case
from lucius.contract.exchange import Attempt, Script, ScriptedAnswer, always
from lucius.contract.stage import Stage

MORE_TRIES_MAX = 3
SILENCE_SECONDS = 2.0


def refuse_success(answer: ScriptedAnswer) -> Script:
    """The RESULT is refused; a FAILED in its place is accepted."""
    return lambda call: answer if call.body.get("status") == "SUCCEEDED" else None


def settle(stage: Stage, attempts: dict[str, Attempt]) -> None:
    """Wait until the service has given up these RESULTs; more than a few tries are too many."""
    for attempt in attempts.values():
        stage.expect(attempt, "RESULT")
    while True:
        tries = {what: _refused(stage, attempt) for what, attempt in attempts.items()}
        for what, count in tries.items():
            expected = f"at most {MORE_TRIES_MAX} more tries after {what}"
            stage.check(count - 1 <= MORE_TRIES_MAX, expected, f"{count - 1} more came, and they do not stop")
        if not stage.happens(partial(_is_repeated, stage, attempts, tries), SILENCE_SECONDS):
            return


def _refused(stage: Stage, attempt: Attempt) -> int:
    return sum(1 for one in stage.calls(attempt, "RESULT") if not one.is_accepted)


def _is_repeated(stage: Stage, attempts: dict[str, Attempt], tries: dict[str, int]) -> bool:
    return any(_refused(stage, attempt) > tries[what] for what, attempt in attempts.items())


@case(
    "result-refused",
    checks=f"A RESULT that is refused with `413` or `422` is not repeated forever: at most {MORE_TRIES_MAX} more "
    "times; a `FAILED` may replace it",
    catches="every error treated as temporary",
    why="The same body is refused each time. A FAILED in its place ends the step at once, while silence costs its "
    "lease.",
    remedy="On 413 or 422 send a RESULT FAILED, NON_RETRYABLE, with the reason; never the same body again.",
)
def result_refused(stage: Stage) -> None:
    refusals = {"413 BODY_TOO_LARGE": (413, "BODY_TOO_LARGE"), "422 ENVELOPE_INVALID": (422, "ENVELOPE_INVALID")}
    attempts = {
        what: stage.deliver(scripts={"RESULT": refuse_success(ScriptedAnswer(*answer))})
        for what, answer in refusals.items()
    }
    settle(stage, attempts)


@case(
    "result-unauthenticated",
    checks=f"A RESULT that is answered `401` is not repeated forever: at most {MORE_TRIES_MAX} more times",
    catches="an expired token that is sent forever",
    why="A token does not become valid again, and each try is counted and logged as a forged callback.",
    remedy="On 401 log it and drop the attempt; its lease will expire.",
)
def result_unauthenticated(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": always(ScriptedAnswer(401, "UNAUTHENTICATED"))})
    settle(stage, {"401 UNAUTHENTICATED": attempt})
