"""One run of the kit: open the stage, wait for the service, run each case, clean up."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucius.contract.bus_bridge import BusBridge, BusPlan
from lucius.contract.case import Case, CaseFailed, CaseNotRun, Level, Status, Verdict
from lucius.contract.directives import Directives, Sample
from lucius.contract.excerpt import excerpt
from lucius.contract.listener import Listener
from lucius.contract.orchestrator import Orchestrator
from lucius.contract.process import ServiceProcess
from lucius.contract.shapes import Shapes
from lucius.contract.stage import LOCK_SECONDS, Stage, environment


@dataclass(frozen=True)
class ContractPlan:
    """What to run, and against what."""

    sample: Sample
    cases: Sequence[Case]
    command: Sequence[str] = ()
    host: str = "127.0.0.1"
    port: int = 0
    start_seconds: float = 60.0
    pace: float = 1.0
    bus: BusPlan | None = None
    """Set if directives travel over a bus instead of over HTTP."""


class NeverPulled(Exception):
    """The service did not pull from the kit in time; the message says what happened instead."""


def run(
    plan: ContractPlan, on_open: Callable[[dict[str, str]], None], on_verdict: Callable[[Verdict], None]
) -> list[Verdict]:
    """Every verdict, in order. `on_open` is called with the environment for starting the service."""
    folder = Path(tempfile.mkdtemp(prefix="lucius-contract-")).resolve()
    api_key = secrets.token_urlsafe(24)
    orchestrator = Orchestrator(plan.sample.service, api_key, Shapes())
    process: ServiceProcess | None = None
    bridge: BusBridge | None = None
    try:
        listener = Listener(plan.host, plan.port, orchestrator)
        try:
            state = folder / "state"
            state.mkdir()
            directives = Directives(plan.sample, folder, listener.url)
            environ = environment(listener.url, api_key, plan.sample.service, str(state), str(directives.files))
            if plan.bus is not None:
                environ |= plan.bus.environment(LOCK_SECONDS * plan.pace)
                bridge = BusBridge(plan.bus, orchestrator, api_key, {**os.environ, **environ})
                bridge.open()
            process = ServiceProcess(plan.command, environ, folder / "service.log") if plan.command else None
            stage = Stage(orchestrator, listener, directives, process, plan.start_seconds, plan.pace)
            on_open(environ)
            _await_first_pull(stage, plan.start_seconds)
            if bridge is not None:
                _await_first_ack(stage, plan.start_seconds)
            return [_tried(stage, case, on_verdict) for case in plan.cases]
        finally:
            if process is not None:
                process.kill()
            if bridge is not None:
                bridge.close()
            listener.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await_first_pull(stage: Stage, seconds: float) -> None:
    if stage.process is not None:
        stage.process.start()
    try:
        stage.wait_for(
            lambda: stage.orchestrator.pulls_open > 0 or any(not one.faults for one in stage.calls(None, "PULL")),
            "a pull",
            f"no pull came in {seconds:g} s",
            seconds,
        )
    except CaseFailed as failure:
        refused = [f"{one.status} {one.code}: {one.faults[0]}" for one in stage.calls(None, "PULL") if one.faults]
        output = stage.process.last_lines() if stage.process else []
        lines = [failure.happened, *(f"A pull was answered {one}" for one in refused[:1])]
        lines += [f"Its output ends: {output[-1]}"] if output else []
        raise NeverPulled("\n".join(lines)) from failure


def _await_first_ack(stage: Stage, seconds: float) -> None:
    """On a bus nobody sees who waits for a directive, so the service shows that it is there by answering one."""
    attempt = stage.deliver()
    try:
        stage.expect(attempt, "ACK", within_seconds=seconds)
    except CaseFailed as failure:
        output = stage.process.last_lines() if stage.process else []
        lines = ["no directive on the bus was acknowledged", failure.happened]
        lines += [f"Its output ends: {output[-1]}"] if output else []
        raise NeverPulled("\n".join(lines)) from failure


def _tried(stage: Stage, case: Case, on_verdict: Callable[[Verdict], None]) -> Verdict:
    started = time.monotonic()
    verdict = _verdict(stage, case)
    verdict.seconds = time.monotonic() - started
    verdict.notes += stage.notes
    if verdict.status in (Status.FAIL, Status.ADVICE):
        verdict.exchange = excerpt(stage.calls(None))
        verdict.service_said = stage.process.last_lines() if stage.process else []
    on_verdict(verdict)
    if verdict.status is not Status.PASS and stage.process is not None:
        # The leftovers of a failed case must not fail the next one.
        stage.process.kill()
        stage.listener.hang_up()
    return verdict


def _verdict(stage: Stage, case: Case) -> Verdict:
    if case.needs_command and stage.process is None:
        reason = "the kit did not start the service: pass its COMMAND so that the kit can kill and restart it"
        return Verdict(case, Status.NOT_RUN, 0.0, reason=reason)
    try:
        stage.begin_case()
        case.body(stage)
        stage.check(not stage.has_died(), "the process to keep running", "it ended by itself")
    except CaseNotRun as reason:
        return Verdict(case, Status.NOT_RUN, 0.0, reason=str(reason))
    except CaseFailed as failure:
        status = Status.FAIL if case.level is Level.MUST else Status.ADVICE
        return Verdict(case, status, 0.0, expected=failure.expected, happened=failure.happened)
    return Verdict(case, Status.PASS, 0.0)
