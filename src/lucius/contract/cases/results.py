"""The RESULT is sent until it is answered, and not afterwards."""

from __future__ import annotations

from lucius.contract.case import case
from lucius.contract.cases.delivery import check_one_result
from lucius.contract.exchange import Call, Script, ScriptedAnswer, always, in_turn
from lucius.contract.stage import Stage

UNAVAILABLE_SECONDS = 1.5
UNAVAILABLE_TRIES_MIN = 3
TRIES_PER_SECOND_MAX = 8.0
IN_FLIGHT_SECONDS = 0.1
RETRY_AFTER_SECONDS = 2
EARLY_SECONDS = 0.1
SLOW_ANSWER_SECONDS = 3.0


def unavailable_for(stage: Stage) -> Script:
    """503 for a while, and at least a few times."""
    tries: list[float] = []

    def answer(call: Call) -> ScriptedAnswer | None:
        tries.append(call.at)
        is_over = call.at - tries[0] >= stage.paced(UNAVAILABLE_SECONDS)
        return None if is_over and len(tries) > UNAVAILABLE_TRIES_MIN else ScriptedAnswer(503, "UNAVAILABLE")

    return answer


@case(
    "result-unavailable",
    checks="The RESULT is answered `503` for a while: it is sent again until it is accepted, at most "
    f"{TRIES_PER_SECOND_MAX:g} times a second",
    catches="a RESULT that is given up after a failure or two, or repeated without a pause",
    why="Unreported work is lost. A server that has just restarted is overloaded by clients that retry without "
    "a pause.",
    remedy="Send the RESULT again until it is answered, with a wait that grows (0.2 s, 0.4 s, 0.8 s and so on, with "
    "jitter).",
)
def result_unavailable(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": unavailable_for(stage)})
    first = stage.expect(attempt, "RESULT")
    stage.expect_end(attempt, within_seconds=20.0)
    window = stage.paced(UNAVAILABLE_SECONDS)
    tries = [one for one in stage.calls(attempt, "RESULT") if one.at < first.at + window]
    tries_max = TRIES_PER_SECOND_MAX * window
    expected = f"at most {tries_max:g} tries in {window:g} s"
    stage.check(len(tries) <= tries_max, expected, f"{len(tries)} tries, without a pause in between")
    check_one_result(stage, attempt)


@case(
    "result-answer-lost",
    checks="The RESULT is applied but its answer is lost: it is sent again unchanged, and `DUPLICATE` ends it",
    catches="a RESULT that is given up when the connection breaks, or repeated until it is `APPLIED`",
    why="Without an answer, the service cannot know whether the RESULT arrived. DUPLICATE says that it did.",
    remedy="Treat a broken connection as no answer and send again; any 200 answer is final.",
)
def result_answer_lost(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": in_turn(ScriptedAnswer(drop=True))})
    again = stage.expect(attempt, "RESULT", count=2)
    stage.quiet(1.0)
    check_one_result(stage, attempt)
    _check_over(stage, again, "DUPLICATE")


@case(
    "result-retry-after",
    checks=f"The RESULT is answered `429` with `Retry-After: {RETRY_AFTER_SECONDS}`: it is sent again, but not sooner",
    catches="a backoff that ignores the header",
    why="A server that asks for a pause needs it.",
    remedy="After 429 or 503 wait at least the seconds in Retry-After.",
)
def result_retry_after(stage: Stage) -> None:
    seconds = max(1, round(stage.paced(RETRY_AFTER_SECONDS)))
    answer = ScriptedAnswer(429, "RATE_LIMITED", retry_after_seconds=seconds)
    attempt = stage.deliver(scripts={"RESULT": in_turn(answer)})
    first = stage.expect(attempt, "RESULT")
    again = stage.expect(attempt, "RESULT", count=2, within_seconds=20.0)
    waited = again.at - first.at
    expected = f"the next try not before {seconds} s after the first"
    stage.check(waited >= seconds - EARLY_SECONDS, expected, f"it came after {waited:.2f} s")
    stage.expect_end(attempt)


@case(
    "result-answer-slow",
    checks=f"The answer to the RESULT takes {SLOW_ANSWER_SECONDS:g} s, in pieces: at most one more is sent "
    "meanwhile, and the service continues with the next directive",
    catches="a client timeout so short that the RESULT is sent again and again; a service that hangs on one call",
    why="Each repeated RESULT adds to the load that made the answer slow.",
    remedy="Give callbacks a timeout of 10 s or more, and send one RESULT of an attempt at a time.",
)
def result_answer_slow(stage: Stage) -> None:
    half = stage.paced(SLOW_ANSWER_SECONDS / 2)
    attempt = stage.deliver(scripts={"RESULT": always(ScriptedAnswer(delay_seconds=half, trickle_seconds=half))})
    first = stage.expect(attempt, "RESULT")
    stage.sleep(SLOW_ANSWER_SECONDS)
    meanwhile = [one for one in stage.calls(attempt, "RESULT") if one is not first]
    happened = f"{len(meanwhile)} more came"
    stage.check(len(meanwhile) <= 1, "at most one more RESULT while the first is being answered", happened)
    stage.expect_end(stage.deliver())


@case(
    "result-late",
    checks="The RESULT is answered `200 LATE`: it is not sent again",
    catches="a RESULT that is repeated until it is `APPLIED`",
    why="The job has ended without this RESULT, and repeating it changes nothing.",
    remedy="Any 200 answer is final: APPLIED, DUPLICATE, LATE and RECEIVED.",
)
def result_late(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": always(ScriptedAnswer(200, "LATE"))})
    first = stage.expect(attempt, "RESULT")
    stage.quiet(1.2)
    _check_over(stage, first, "LATE")


@case(
    "result-stale",
    checks="The RESULT is answered `409 STALE_ATTEMPT`: it is not sent again",
    catches="a 409 that is treated as temporary",
    why="Another attempt is current, and this one will never be again.",
    remedy="On 409 drop the attempt.",
)
def result_stale(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": always(ScriptedAnswer(409, "STALE_ATTEMPT"))})
    first = stage.expect(attempt, "RESULT")
    stage.quiet(1.2)
    _check_over(stage, first, "409 STALE_ATTEMPT")


def _check_over(stage: Stage, answered: Call, answer: str) -> None:
    """Nothing follows that answer, except calls already under way."""
    after = [one for one in stage.calls(answered.attempt, "RESULT") if one.at > answered.at + IN_FLIGHT_SECONDS]
    stage.check(not after, f"no RESULT after the answer {answer}", f"{len(after)} more came")
