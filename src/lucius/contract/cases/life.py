"""The service as a process: it waits quietly, outlives a server that is away, and comes back after a crash."""

from __future__ import annotations

from dataclasses import dataclass

from lucius.contract.case import Level, case
from lucius.contract.cases.acks import expect_ack
from lucius.contract.cases.results import TRIES_PER_SECOND_MAX, UNAVAILABLE_SECONDS
from lucius.contract.exchange import Answer, always
from lucius.contract.stage import EXIT_SECONDS_MAX, Stage

IDLE_SECONDS = 2.0
IDLE_PULLS_MAX = 4
REFUSED_SECONDS = 1.0
COME_BACK_SECONDS = 30.0
RESENT_SECONDS = 5.0
UNANSWERED = Answer(503, "UNAVAILABLE", delay_seconds=20.0)
"""The service is killed long before this is said."""


@case(
    "idle",
    checks=f"With nothing to do there are at most {IDLE_PULLS_MAX} pulls in {IDLE_SECONDS:g} s: the pull is a long "
    "poll",
    catches="polling in a loop with `wait_seconds` 0",
    why="Every idle worker would cost the server hundreds of calls a second.",
    remedy="Pull with wait_seconds 20: the server answers as soon as there is work.",
)
def idle(stage: Stage) -> None:
    stage.quiet(0.2)
    since = stage.orchestrator.now()
    stage.let_pass(IDLE_SECONDS)
    pulls = [one for one in stage.calls(None, "PULL") if one.at >= since]
    expected = f"at most {IDLE_PULLS_MAX} pulls in {stage.paced(IDLE_SECONDS):g} s without work"
    stage.check(len(pulls) <= IDLE_PULLS_MAX, expected, f"{len(pulls)} came")


@case(
    "pull-unavailable",
    checks="Pulls are answered `503` for a while: the service goes on pulling, not more than "
    f"{TRIES_PER_SECOND_MAX:g} times a second, and takes the next directive",
    catches="a service that ends, or hammers, when a pull fails",
    why="A server that restarts is away for seconds; services must be there when it is back, and let it come back.",
    remedy="On an error wait, longer each time up to a few seconds, and pull again for as long as the process lives.",
)
def pull_unavailable(stage: Stage) -> None:
    stage.orchestrator.pull_script = always(Answer(503, "UNAVAILABLE"))
    stage.orchestrator.let_go()
    since = stage.orchestrator.now()
    stage.let_pass(UNAVAILABLE_SECONDS)
    tries = [one for one in stage.calls(None, "PULL") if one.at >= since]
    window = stage.paced(UNAVAILABLE_SECONDS)
    tries_max = TRIES_PER_SECOND_MAX * window
    happened = f"{len(tries)} came: no pause in between"
    stage.check(len(tries) <= tries_max, f"at most {tries_max:g} pulls in {window:g} s of 503", happened)
    stage.orchestrator.pull_script = None
    stage.expect_end(stage.deliver(), within_seconds=COME_BACK_SECONDS)


@case(
    "pull-refused",
    checks="Connections are refused for a while, and those that are open are cut: the service takes the next "
    "directive when the server is back",
    catches="a service that ends, or hangs on a dead connection",
    why="A server that restarts is away for seconds; services must be there when it is back.",
    remedy="Treat a connection that is refused or breaks like a 503: wait, connect anew, pull again.",
)
def pull_refused(stage: Stage) -> None:
    stage.listener.shut_door()
    stage.let_pass(REFUSED_SECONDS)
    stage.listener.open_door()
    stage.expect_end(stage.deliver(), within_seconds=COME_BACK_SECONDS)


@case(
    "crash-in-work",
    checks="Killed with SIGKILL in the middle of work and started again: the next attempt of that step is answered, "
    "and new directives are taken",
    catches="state on disk that blocks the next attempt or the start: a lock file, a half-written record",
    why="A machine that fails takes the process with it at any moment.",
    remedy="Write state so that any moment is a good one to die at, and take locks that end with their process.",
    needs_command=True,
    needs_slow_work=True,
)
def crash_in_work(stage: Stage) -> None:
    attempt = stage.deliver(work_seconds=4.0)
    stage.reach_work(attempt)
    stage.kill()
    stage.start()
    stage.expect_end(stage.deliver_next(attempt))
    stage.expect_end(stage.deliver())


@case(
    "crash-before-ack",
    checks="Killed with SIGKILL before its ACK was taken and started again: the same directive, delivered again, is "
    "worked",
    catches="attempts that are noted on disk as seen before they are done, and taken for duplicates after the restart",
    why="Nobody else is given the directive: it would come again and again until its attempt is given up.",
    remedy="Take an attempt for a duplicate only if it is in work in this process, or if its RESULT is there.",
    needs_command=True,
)
def crash_before_ack(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"ACK": always(UNANSWERED), "RESULT": always(UNANSWERED)})
    expect_ack(stage, attempt)
    stage.kill()
    attempt.scripts.clear()
    stage.start()
    stage.deliver_again(attempt)
    stage.expect_end(attempt)


@case(
    "crash-before-answer",
    checks="Killed with SIGKILL before its RESULT was answered and started again: the RESULT is sent without a new "
    "delivery",
    catches="a RESULT that is in memory only",
    why="The work is done. Without its RESULT the lease runs out, and the next attempt does all of it again.",
    remedy="Write the RESULT to LUCIUS_PLATFORM_STATE before sending it, and send what is there when you start.",
    level=Level.SHOULD,
    needs_command=True,
)
def crash_before_answer(stage: Stage) -> None:
    attempt = stage.deliver(scripts={"RESULT": always(UNANSWERED)})
    stage.expect(attempt, "RESULT")
    stage.kill()
    attempt.scripts.clear()
    stage.start()
    stage.expect_end(attempt, within_seconds=RESENT_SECONDS)


@dataclass(frozen=True)
class Ending:
    """What came of a SIGTERM in the middle of work."""

    exit_code: int | None
    has_result: bool


def _ending(stage: Stage) -> Ending:
    """The three cases below look at one and the same SIGTERM."""
    remembered = stage.remembered.get("sigterm")
    if isinstance(remembered, Ending):
        return remembered
    process = stage.own_process()
    attempt = stage.deliver(work_seconds=2.0)
    stage.reach_work(attempt)
    stage.terminate()
    exit_code = process.wait(EXIT_SECONDS_MAX)
    ending = Ending(exit_code, any(one.is_accepted for one in stage.calls(attempt, "RESULT")))
    stage.kill()
    stage.remembered["sigterm"] = ending
    return ending


@case(
    "sigterm-exits",
    checks=f"SIGTERM in the middle of work: the process ends within {EXIT_SECONDS_MAX:g} s",
    catches="a signal that is ignored, or a shutdown that waits for ever",
    why="Whoever runs the service kills it after that, and what it had in work is lost.",
    remedy="On SIGTERM stop pulling, finish or give back what is in work, and end.",
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_exits(stage: Stage) -> None:
    happened = f"it still ran {EXIT_SECONDS_MAX:g} s later"
    stage.check(_ending(stage).exit_code is not None, f"an end within {EXIT_SECONDS_MAX:g} s of SIGTERM", happened)


@case(
    "sigterm-finishes-work",
    checks="SIGTERM in the middle of work: the work is finished or given back, with a RESULT, before the process ends",
    catches="a shutdown that forgets what is in work",
    why="A new version of the service would cost each step in work its lease and an attempt.",
    remedy="On SIGTERM finish what is short; give the rest back with FAILED, RATE_LIMITED and retry_after 1, which "
    "costs no attempt.",
    level=Level.SHOULD,
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_finishes_work(stage: Stage) -> None:
    stage.check(_ending(stage).has_result, "a RESULT for the work that was under way", "none came before the end")


@case(
    "sigterm-exit-code",
    checks="After SIGTERM the process ends with exit code 0",
    catches="a signal that nobody handles",
    why="Supervisors take another code for a crash, and restart or raise an alarm.",
    remedy="Handle SIGTERM, and end with 0.",
    level=Level.SHOULD,
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_exit_code(stage: Stage) -> None:
    code = _ending(stage).exit_code
    stage.check(code == 0, "exit code 0 after SIGTERM", "it did not end" if code is None else f"exit code {code}")
