"""The service as a process: it idles cheaply, survives a server outage, and recovers after a crash."""

from __future__ import annotations

from dataclasses import dataclass

from lucius.contract.case import Level, case
from lucius.contract.cases.acks import expect_ack
from lucius.contract.cases.results import TRIES_PER_SECOND_MAX, UNAVAILABLE_SECONDS
from lucius.contract.exchange import ScriptedAnswer, always
from lucius.contract.stage import EXIT_SECONDS_MAX, Stage

IDLE_SECONDS = 2.0
IDLE_PULLS_MAX = 4
REFUSED_SECONDS = 1.0
COME_BACK_SECONDS = 30.0
RESENT_SECONDS = 5.0
UNANSWERED = ScriptedAnswer(503, "UNAVAILABLE", delay_seconds=20.0)
"""The service is killed long before this work ends."""


@case(
    "idle",
    checks=f"Without work there are at most {IDLE_PULLS_MAX} pulls in {IDLE_SECONDS:g} s: the pull is a long poll",
    catches="polling in a loop with `wait_seconds` 0",
    why="Every idle worker would cost the server hundreds of calls a second.",
    remedy="Pull with wait_seconds 20: the server answers as soon as there is work.",
)
def idle(stage: Stage) -> None:
    stage.quiet(0.2)
    since = stage.orchestrator.now()
    stage.sleep(IDLE_SECONDS)
    pulls = [one for one in stage.calls(None, "PULL") if one.at >= since]
    expected = f"at most {IDLE_PULLS_MAX} pulls in {stage.paced(IDLE_SECONDS):g} s without work"
    stage.check(len(pulls) <= IDLE_PULLS_MAX, expected, f"{len(pulls)} came")


@case(
    "pull-unavailable",
    checks="Pulls are answered `503` for a while: the service keeps pulling, at most "
    f"{TRIES_PER_SECOND_MAX:g} times a second, and takes the next directive",
    catches="a service that exits, or retries without a pause, when a pull fails",
    why="A restarting server is unavailable for seconds; services must survive that without overloading it.",
    remedy="On an error wait, longer each time up to a few seconds, and keep pulling as long as the process runs.",
)
def pull_unavailable(stage: Stage) -> None:
    stage.orchestrator.pull_script = always(ScriptedAnswer(503, "UNAVAILABLE"))
    stage.orchestrator.release_pulls()
    since = stage.orchestrator.now()
    stage.sleep(UNAVAILABLE_SECONDS)
    tries = [one for one in stage.calls(None, "PULL") if one.at >= since]
    window = stage.paced(UNAVAILABLE_SECONDS)
    tries_max = TRIES_PER_SECOND_MAX * window
    happened = f"{len(tries)} came, without a pause in between"
    stage.check(len(tries) <= tries_max, f"at most {tries_max:g} pulls in {window:g} s of 503", happened)
    stage.orchestrator.pull_script = None
    stage.expect_end(stage.deliver(), within_seconds=COME_BACK_SECONDS)


@case(
    "pull-refused",
    checks="Connections are refused for a while and open ones are closed: the service takes the next directive when "
    "the server is back",
    catches="a service that exits, or hangs on a dead connection",
    why="A restarting server is unavailable for seconds; services must survive that.",
    remedy="Treat a refused or broken connection like a 503: wait, reconnect, pull again.",
)
def pull_refused(stage: Stage) -> None:
    stage.listener.refuse_connections()
    stage.sleep(REFUSED_SECONDS)
    stage.listener.accept_connections()
    stage.expect_end(stage.deliver(), within_seconds=COME_BACK_SECONDS)


@case(
    "crash-in-work",
    checks="Killed with SIGKILL during work and restarted: the next attempt of that step is answered, "
    "and new directives are taken",
    catches="state on disk that blocks the next attempt or the start: a lock file, a half-written record",
    why="A machine may fail at any moment, and the process with it.",
    remedy="Make state on disk crash-safe at any moment, and use locks that end with their process.",
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
    checks="Killed with SIGKILL before its ACK was answered and restarted: the same directive, redelivered, is "
    "worked on",
    catches="attempts recorded on disk as seen before they are done, and treated as duplicates after the restart",
    why="No other replica gets the directive: it would be redelivered until its attempt is given up.",
    remedy="Treat an attempt as a duplicate only if it is running in this process, or if its RESULT exists.",
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
    checks="Killed with SIGKILL before its RESULT was answered and restarted: the RESULT is sent without a new "
    "delivery",
    catches="a RESULT that is only in memory",
    why="The work is done. Without its RESULT the lease expires, and the next attempt repeats all of it.",
    remedy="Write the RESULT to LUCIUS_PLATFORM_STATE before sending it, and send stored ones at the start.",
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
    """The effect of a SIGTERM during work."""

    exit_code: int | None
    has_result: bool


def _ending(stage: Stage) -> Ending:
    """Shared by the three cases below, which examine the same SIGTERM."""
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
    checks=f"SIGTERM during work: the process exits within {EXIT_SECONDS_MAX:g} s",
    catches="an ignored signal, or a shutdown that waits forever",
    why="The supervisor kills it after that, and running work is lost.",
    remedy="On SIGTERM stop pulling, finish or give back running work, and exit.",
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_exits(stage: Stage) -> None:
    happened = f"it was still running {EXIT_SECONDS_MAX:g} s later"
    stage.check(_ending(stage).exit_code is not None, f"an exit within {EXIT_SECONDS_MAX:g} s of SIGTERM", happened)


@case(
    "sigterm-finishes-work",
    checks="SIGTERM during work: the work is finished or given back, with a RESULT, before the process exits",
    catches="a shutdown that drops running work",
    why="Otherwise every deployment costs each running step its lease and an attempt.",
    remedy="On SIGTERM finish short work; give the rest back with FAILED, RATE_LIMITED and retry_after 1, which "
    "costs no attempt.",
    level=Level.SHOULD,
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_finishes_work(stage: Stage) -> None:
    stage.check(_ending(stage).has_result, "a RESULT for the running work", "none came before the exit")


@case(
    "sigterm-exit-code",
    checks="After SIGTERM the process exits with code 0",
    catches="an unhandled signal",
    why="Supervisors treat any other code as a crash, and restart or alert.",
    remedy="Handle SIGTERM, and exit with 0.",
    level=Level.SHOULD,
    needs_command=True,
    needs_slow_work=True,
)
def sigterm_exit_code(stage: Stage) -> None:
    code = _ending(stage).exit_code
    stage.check(code == 0, "exit code 0 after SIGTERM", "it did not exit" if code is None else f"exit code {code}")
