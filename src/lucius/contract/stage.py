"""The tools of a case: deliver directives, wait for calls, check for silence, kill the process.

Times in cases are for a pace of 1; another pace stretches or shortens work, leases and delays. Deadlines for required
calls, and silences in which none may come, are only ever stretched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from lucius.contract.case import CaseFailed, CaseNotRun
from lucius.contract.directives import Directives
from lucius.contract.exchange import Attempt, Call, Script
from lucius.contract.files import files_under, workspace_of
from lucius.contract.listener import Listener
from lucius.contract.orchestrator import Orchestrator
from lucius.contract.process import ServiceProcess

MUST_HAPPEN_SECONDS = 15.0
READY_SECONDS = 30.0
EXIT_SECONDS_MAX = 30.0
ABSENCES_MAX = 2
"""After this many cases in a row without any pull, the rest are not run."""
LOCK_SECONDS = 2.0
LEASE_SECONDS = 30.0
MID_WORK_SECONDS = 0.3
UNACKED_SECONDS = 0.5
"""Without an ACK, how long after delivery the service counts as working."""
LOOK_SECONDS = 0.25
TENANT = "contract-test"
SLOW_ADVICE = "pass a slow sample (--slow-payload/--slow-input) or support contract_test.work_seconds"


class Stage:
    def __init__(
        self,
        orchestrator: Orchestrator,
        listener: Listener,
        directives: Directives,
        process: ServiceProcess | None,
        start_seconds: float,
        pace: float = 1.0,
    ) -> None:
        self.orchestrator = orchestrator
        self.listener = listener
        self.directives = directives
        self.process = process
        self.notes: list[str] = []
        self.remembered: dict[str, Any] = {}
        """Results that one case leaves for others that examine the same thing; kept for the whole run."""
        self._start_seconds = start_seconds
        self._pace = pace
        self._may_end = False
        self._absences = 0

    def paced(self, seconds: float) -> float:
        return seconds * self._pace

    # --- Delivering --------------------------------------------------------------------------------------------------

    def deliver(
        self,
        *,
        tenant: str = TENANT,
        work_seconds: float = 0.0,
        lease_seconds: float = LEASE_SECONDS,
        scripts: dict[str, Script] | None = None,
        **fields: Any,
    ) -> Attempt:
        """Deliver a new job's first attempt. `work_seconds` makes it slow, for cases that need running work."""
        directive = self.directives.first(
            tenant, self.paced(lease_seconds), self.paced(work_seconds), is_slow=work_seconds > 0
        )
        return self._publish(directive | fields, scripts)

    def deliver_directive(self, directive: dict[str, Any]) -> Attempt:
        """Deliver a directive that the case has built itself."""
        return self._publish(directive, None)

    def deliver_next(self, attempt: Attempt, scripts: dict[str, Script] | None = None, **fields: Any) -> Attempt:
        """Deliver the step's next attempt; the previous one is stale from now on."""
        directive = self.directives.attempt(attempt.directive, int(attempt.directive["attempt_no"]) + 1)
        directive["contract_test"] = {"work_seconds": 0}
        return self._publish(directive | fields, scripts)

    def _publish(self, directive: dict[str, Any], scripts: dict[str, Script] | None) -> Attempt:
        attempt = Attempt(directive, self.paced(LOCK_SECONDS), dict(scripts or {}))
        self.orchestrator.publish(attempt)
        return attempt

    def deliver_again(self, attempt: Attempt) -> None:
        """Deliver the same directive once more; returns when the service has pulled it."""
        handed = len(attempt.handed_at)
        self.orchestrator.publish_again(attempt)
        self.wait_for(
            lambda: len(attempt.handed_at) > handed,
            "the directive to be pulled when it is redelivered",
            "the service pulled nothing",
        )

    # --- Checking ----------------------------------------------------------------------------------------------------

    def calls(self, attempt: Attempt | None, *kinds: str) -> list[Call]:
        """The calls of this case so far, about one attempt or about any."""
        with self.orchestrator.changed:
            mine = [call for call in self.orchestrator.calls if call.attempt is None or not call.attempt.closed]
            return [
                call
                for call in mine
                if (attempt is None or call.attempt is attempt) and (not kinds or call.kind in kinds)
            ]

    def expect(self, attempt: Attempt, kind: str, count: int = 1, within_seconds: float = MUST_HAPPEN_SECONDS) -> Call:
        """The `count`th call of that kind, accepted or not."""
        what = f"{'a' if count == 1 else f'the {count}th'} {kind}"
        self.wait_for(
            lambda: len(self.calls(attempt, kind)) >= count,
            f"{what} within {within_seconds:g} s",
            lambda: f"{len(self.calls(attempt, kind)) or 'none'} came",
            within_seconds,
        )
        return self.calls(attempt, kind)[count - 1]

    def expect_end(self, attempt: Attempt, within_seconds: float = MUST_HAPPEN_SECONDS) -> Call:
        """The RESULT that was accepted."""

        def accepted() -> list[Call]:
            return [call for call in self.calls(attempt, "RESULT") if call.is_accepted]

        expected = f"a RESULT that is accepted within {within_seconds:g} s"
        self.wait_for(
            lambda: bool(accepted() or self._is_refused(attempt)),
            expected,
            lambda: _refusals(self.calls(attempt, "ACK", "RESULT")),
            within_seconds,
        )
        self.check(bool(accepted()), expected, _refusals(self.calls(attempt, "ACK", "RESULT")))
        return accepted()[0]

    def _is_refused(self, attempt: Attempt) -> bool:
        """A callback with wrong ids, token or shape is refused each time: no need to wait."""
        return any(one.faults and not one.is_accepted for one in self.calls(attempt, "ACK", "RESULT"))

    def wait_for(
        self,
        holds: Callable[[], bool],
        expected: str,
        happened: str | Callable[[], str],
        within_seconds: float = MUST_HAPPEN_SECONDS,
    ) -> None:
        """Wait until it holds, unless the service exits meanwhile."""
        deadline = time.monotonic() + within_seconds * max(1.0, self._pace)
        while not self.orchestrator.wait(holds, LOOK_SECONDS):
            self.check_alive(expected)
            if time.monotonic() >= deadline:
                raise CaseFailed(expected, happened if isinstance(happened, str) else happened())

    def check(self, holds: bool, expected: str, happened: str) -> None:
        if not holds:
            raise CaseFailed(expected, happened)

    def check_alive(self, expected: str = "the process to keep running") -> None:
        if self.process is not None and self.has_died():
            raise CaseFailed(expected, f"the process ended with exit code {self.process.exit_code}")

    def quiet(self, seconds: float) -> None:
        """Wait and give the service time for mistakes. Like a deadline, this never shrinks."""
        self._sleep(seconds * max(1.0, self._pace))

    def sleep(self, seconds: float) -> None:
        """Wait for a time that the case chose."""
        self._sleep(self.paced(seconds))

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            self.check_alive()

    def happens(self, holds: Callable[[], bool], within_seconds: float) -> bool:
        """Whether something comes; its absence is not a failure by itself."""
        return self.orchestrator.wait(holds, within_seconds * max(1.0, self._pace))

    def reach_work(self, attempt: Attempt) -> None:
        """Return during the work, or raise `CaseNotRun` if the service is too quick."""
        self.wait_for(lambda: bool(attempt.handed_at), "the directive to be pulled", "the service pulled nothing")
        self.orchestrator.wait(
            lambda: bool(self.calls(attempt, "ACK", "HEARTBEAT", "RESULT")), self.paced(UNACKED_SECONDS)
        )
        time.sleep(self.paced(MID_WORK_SECONDS))
        self.check_alive()
        self.check_in_work(attempt)

    def check_in_work(self, attempt: Attempt) -> None:
        if self.calls(attempt, "RESULT"):
            raise CaseNotRun(f"the RESULT came before the work could be observed; {SLOW_ADVICE}")

    def expect_heartbeat(self, attempt: Attempt) -> Call:
        """The first heartbeat; without one the case cannot be run."""
        has_call = self.happens(lambda: bool(self.calls(attempt, "HEARTBEAT", "RESULT")), MUST_HAPPEN_SECONDS)
        if has_call and self.calls(attempt, "HEARTBEAT"):
            return self.calls(attempt, "HEARTBEAT")[0]
        self.check_alive()
        lease = attempt.directive["lease_seconds"]
        raise CaseNotRun(f"no HEARTBEAT came before the RESULT (lease {lease:g} s); see heartbeat-keeps-lease")

    def strays(self) -> list[str]:
        """Files under the workspaces' root that are in no attempt's folder."""
        folders = [workspace_of(one.directive) for one in self.orchestrator.attempts]
        root = self.directives.workspaces
        return [
            str(path.relative_to(root))
            for path in files_under(root)
            if not any(path.is_relative_to(folder) for folder in folders)
        ]

    # --- The process -------------------------------------------------------------------------------------------------

    def own_process(self) -> ServiceProcess:
        if self.process is None:
            raise CaseNotRun("the kit did not start the service; pass its COMMAND")
        return self.process

    def kill(self) -> None:
        """SIGKILL, like a crash. Closes its open connections."""
        self._may_end = True
        self.own_process().kill()
        self.listener.hang_up()

    def terminate(self) -> None:
        self._may_end = True
        self.own_process().terminate()

    def start(self) -> None:
        """Start the process if it is not running, and wait until it pulls."""
        process = self.own_process()
        with self.orchestrator.changed:
            before = len(self.calls(None, "PULL"))
        process.start()
        self._may_end = False
        self.wait_for(
            lambda: len(self.calls(None, "PULL")) > before,
            f"a pull within {self._start_seconds:g} s of the start",
            "the service pulled nothing",
            self._start_seconds,
        )

    def restart(self) -> None:
        self.kill()
        self.start()

    def has_died(self) -> bool:
        """Whether the process exited on its own."""
        return self.process is not None and not self._may_end and not self.process.is_running()

    def begin_case(self) -> None:
        """Reset the stage, and wait for the service to pull."""
        self.orchestrator.begin_case()
        self.listener.accept_connections()
        self.notes, self._may_end = [], False
        if self._absences >= ABSENCES_MAX:
            raise CaseNotRun("the service is gone: it did not pull for the previous cases either")
        self._absences += 1
        if self.process is not None:
            self.process.begin_case()
            if not self.process.is_running():
                self.listener.hang_up()
                self.start()
        self.wait_for(self._is_pulling, "a service that pulls", "it stopped pulling", READY_SECONDS)
        self._absences = 0

    def _is_pulling(self) -> bool:
        return self.orchestrator.pulls_open > 0 or any(call.kind == "PULL" for call in self.orchestrator.calls)


def _refusals(callbacks: list[Call]) -> str:
    refused = [one for one in callbacks if not one.is_accepted]
    if not refused:
        return "no RESULT came"
    shown = [f"{one.kind} {one.status} {one.code}" + (f" ({one.faults[0]})" if one.faults else "") for one in refused]
    return f"{len(refused)} callbacks were refused: {', '.join(shown[:3])}"


def environment(url: str, api_key: str, service: str, state: str, files: str) -> dict[str, str]:
    """The environment of the service. `LUCIUS_URL` too, so that a service that reads it reaches no real server."""
    host = url.rpartition("://")[2].rpartition(":")[0]
    file_roots = ",".join(filter(None, (os.environ.get("LUCIUS_PLATFORM_FILE_ROOTS"), f"shared:{files}")))
    unproxied = ",".join(filter(None, (os.environ.get("no_proxy"), host, "127.0.0.1", "localhost")))
    return {
        "LUCIUS_ORCHESTRATOR_URL": url,
        "LUCIUS_API_KEY": api_key,
        "LUCIUS_SERVICE": service,
        "LUCIUS_PLATFORM_STATE": state,
        "LUCIUS_PLATFORM_FILE_ROOTS": file_roots,
        "LUCIUS_CONTRACT_TEST": "1",
        "LUCIUS_URL": url,
        "no_proxy": unproxied,
        "NO_PROXY": unproxied,
    }
