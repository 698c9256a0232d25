"""How the service handles the answer to its ACK."""

from __future__ import annotations

from lucius.contract.case import CaseNotRun, case
from lucius.contract.cases.delivery import check_one_result
from lucius.contract.exchange import Attempt, Call, ScriptedAnswer, in_turn
from lucius.contract.stage import Stage

IN_FLIGHT_SECONDS = 0.3


def expect_ack(stage: Stage, attempt: Attempt) -> Call:
    """The first ACK; a service that sends none has failed `ack-in-time` and cannot be tested here."""
    stage.wait_for(
        lambda: bool(stage.calls(attempt, "ACK", "RESULT")), "an ACK for the directive", "neither ACK nor RESULT came"
    )
    if not stage.happens(lambda: bool(stage.calls(attempt, "ACK")), 1.0):
        raise CaseNotRun("the service sent no ACK, so its handling of the answer cannot be tested; see ack-in-time")
    return stage.calls(attempt, "ACK")[0]


@case(
    "ack-answer-lost",
    checks="The ACK is applied but its answer is lost: the service sends it again or continues, and one RESULT follows",
    catches="work that is abandoned because the answer to the ACK was lost",
    why="The ACK counts, so no other replica gets the directive: a dropped attempt hangs until its lease ends.",
    remedy="Send the ACK again until it is answered; DUPLICATE is equivalent to APPLIED.",
)
def ack_answer_lost(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"ACK": in_turn(ScriptedAnswer(drop=True))})
    expect_ack(stage, attempt)
    stage.expect_end(attempt)
    stage.quiet(0.7)
    check_one_result(stage, attempt)


@case(
    "ack-answer-late",
    checks="The ACK is answered after 3 s: the service waits or continues, and one RESULT follows",
    catches="a client timeout that is too short, after which the directive is dropped",
    why="A server under load answers late, and its answer still counts.",
    remedy="Give callbacks a timeout of 10 s or more, and on a timeout send the callback again.",
)
def ack_answer_late(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"ACK": in_turn(ScriptedAnswer(delay_seconds=stage.paced(3.0)))})
    expect_ack(stage, attempt)
    stage.expect_end(attempt, within_seconds=20.0)
    check_one_result(stage, attempt)


@case(
    "ack-stale",
    checks="The ACK is answered `409 STALE_ATTEMPT`: no RESULT and no heartbeat follow",
    catches="an ACK whose answer is ignored",
    why="Another attempt is current, and two workers on one step overwrite each other.",
    remedy="Read the answer to the ACK; on 409 drop the directive.",
)
def ack_stale(stage: Stage) -> None:
    answer = ScriptedAnswer(409, "STALE_ATTEMPT", delay_seconds=IN_FLIGHT_SECONDS)
    attempt = stage.deliver(scripts={"ACK": in_turn(answer, answer, answer)})
    ack = expect_ack(stage, attempt)
    stage.orchestrator.supersede(attempt)
    stage.quiet(1.5)
    after = [one for one in stage.calls(attempt, "HEARTBEAT", "RESULT") if one.at >= ack.at + IN_FLIGHT_SECONDS]
    happened = f"{len(after)} came, the first a {after[0].kind if after else ''}"
    stage.check(not after, "no RESULT and no HEARTBEAT after the ACK was answered 409", happened)


@case(
    "ack-unavailable",
    checks="The ACK is answered `503` at first: it is sent again, and the directive is worked on",
    catches="an ACK that is not retried",
    why="A restarting server answers 503 for a moment; nothing was recorded, so the directive would be redelivered "
    "in vain.",
    remedy="On 503, or without an answer, send the same callback again after a short wait.",
)
def ack_unavailable(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"ACK": in_turn(ScriptedAnswer(503, "UNAVAILABLE"))})
    expect_ack(stage, attempt)
    stage.expect(attempt, "ACK", count=2)
    stage.expect_end(attempt)
