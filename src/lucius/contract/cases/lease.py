"""The lease: kept alive by heartbeats, lost, or cancelled."""

from __future__ import annotations

from itertools import pairwise

from lucius.contract.case import CaseNotRun, case
from lucius.contract.cases.delivery import check_succeeded
from lucius.contract.exchange import Attempt, Call, ScriptedAnswer, always, in_turn
from lucius.contract.files import output_of
from lucius.contract.stage import SLOW_ADVICE, Stage

IN_FLIGHT_SECONDS = 0.4


@case(
    "heartbeat-keeps-lease",
    checks="During work of 4 s with a lease of 2 s, heartbeats keep it: from the ACK to the RESULT no gap is longer "
    "than the lease, and each heartbeat matches the schema",
    catches="no heartbeats, too few, or only on progress",
    why="When the lease expires the step gets another attempt, and the work of this one is lost.",
    remedy="Send a heartbeat every third of lease_seconds, from a timer or thread independent of the work.",
    needs_slow_work=True,
)
def heartbeat_keeps_lease(stage: Stage) -> None:
    attempt = stage.deliver(work_seconds=4.0, lease_seconds=2.0)
    lease = float(attempt.directive["lease_seconds"])
    stage.reach_work(attempt)
    result = stage.expect_end(attempt, within_seconds=30.0)
    marks = [one.at for one in stage.calls(attempt, "ACK", "HEARTBEAT") if one.is_accepted and one.at < result.at]
    started = marks[0] if marks else attempt.handed_at[0]
    if result.at - started <= lease:
        raise CaseNotRun(f"the work took {result.at - started:.1f} s, less than the lease; {SLOW_ADVICE}")
    moments = sorted([started, *marks, result.at])
    gap = max(later - earlier for earlier, later in pairwise(moments))
    beats = stage.calls(attempt, "HEARTBEAT")
    happened = f"{len(beats)} heartbeats, and a gap of {gap:.2f} s"
    stage.check(gap <= lease, f"no gap longer than the lease of {lease:g} s", happened)
    wrong = [fault for one in beats for fault in one.faults]
    stage.check(not wrong, "heartbeats that match the schema", "; ".join(wrong[:3]))


@case(
    "heartbeat-unavailable",
    checks="Heartbeats that are answered `503` do not stop the work: its RESULT is `SUCCEEDED`",
    catches="a failed heartbeat that ends the work",
    why="A failed heartbeat costs nothing until the lease ends; abandoned work costs an attempt.",
    remedy="On 503, or without an answer, continue, and send the next heartbeat.",
    needs_slow_work=True,
)
def heartbeat_unavailable(stage: Stage) -> None:
    unavailable = ScriptedAnswer(503, "UNAVAILABLE")
    attempt = stage.deliver(
        work_seconds=2.5, lease_seconds=2.0, scripts={"HEARTBEAT": in_turn(unavailable, unavailable)}
    )
    stage.reach_work(attempt)
    stage.expect_heartbeat(attempt)
    check_succeeded(stage, stage.expect_end(attempt, within_seconds=30.0))


@case(
    "stale-in-work",
    checks="A heartbeat is answered `409 STALE_ATTEMPT`: no callback for this attempt follows, except one already "
    "under way, and `output_ref` is not written",
    catches="a heartbeat whose answer is ignored; a result published without a final check",
    why="Another attempt is already running. A late write to output_ref overwrites its result.",
    remedy="Stop the work when a heartbeat is answered 409, and check once more before writing to output_ref.",
    needs_slow_work=True,
)
def stale_in_work(stage: Stage) -> None:
    work_seconds = 2.4
    attempt = stage.deliver(work_seconds=work_seconds, lease_seconds=1.5)

    def overtaken(call: Call) -> ScriptedAnswer | None:
        attempt.superseded = True
        return None

    attempt.on("HEARTBEAT", overtaken)
    stage.reach_work(attempt)
    beat = stage.expect_heartbeat(attempt)
    since = stage.orchestrator.now() - attempt.handed_at[0]
    stage.sleep(work_seconds - since / stage.paced(1.0))
    stage.quiet(0.7)
    after = [one for one in stage.calls(attempt) if one.kind != "DIRECTIVE" and one.at > beat.at + IN_FLIGHT_SECONDS]
    kinds = ", ".join(sorted({one.kind for one in after}))
    stage.check(not after, "no callbacks for a stale attempt", f"{len(after)} more callbacks: {kinds}")
    output = output_of(attempt.directive)
    stage.check(not output.exists(), f"nothing at output_ref ({output})", "the stale attempt has written it")


@case(
    "cancel-at-ack",
    checks="The ACK is answered with `cancel_requested`: a RESULT of any status still follows",
    catches="a service that goes silent when a job is cancelled",
    why="The job stays CANCELLING until a RESULT comes or the lease expires.",
    remedy="Stop if you can, and send a RESULT in any case: FAILED with NON_RETRYABLE is enough.",
)
def cancel_at_ack(stage: Stage) -> None:
    cancelled = always(ScriptedAnswer(cancel_requested=True))
    attempt = stage.deliver(scripts={"ACK": cancelled, "HEARTBEAT": cancelled})
    stage.expect_end(attempt)


@case(
    "cancel-in-work",
    checks="A heartbeat is answered with `cancel_requested`: a RESULT of any status still follows; it may end early",
    catches="a service that goes silent when a job is cancelled",
    why="The job stays CANCELLING until a RESULT comes or the lease expires.",
    remedy="Stop if you can, and send a RESULT in any case: FAILED with NON_RETRYABLE is enough.",
    needs_slow_work=True,
)
def cancel_in_work(stage: Stage) -> None:
    work_seconds = 4.0
    cancelled = always(ScriptedAnswer(cancel_requested=True))
    attempt = stage.deliver(work_seconds=work_seconds, lease_seconds=1.5, scripts={"HEARTBEAT": cancelled})
    stage.expect_heartbeat(attempt)
    result = stage.expect_end(attempt, within_seconds=20.0)
    _note_early_end(stage, attempt, result, stage.paced(work_seconds))


def _note_early_end(stage: Stage, attempt: Attempt, result: Call, work_seconds: float) -> None:
    took = result.at - attempt.handed_at[0]
    if took < work_seconds - 0.5:
        stage.notes.append(f"well done: the cancelled work ended after {took:.1f} s of {work_seconds:g} s")
