"""One directive in work: what its thread and the event loop tell each other, and how it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from lucius.reference.directive import Directive, Outcome, Report
from lucius.reference.failure import StepFailed, WorkStopped, classified
from lucius.reference.files import Workspace, publish

Service = Callable[[Directive, Workspace, Report], Outcome]
"""A service is one plain function; it runs in a thread and need not know asyncio."""

GIVEN_BACK_RETRY_SECONDS = 1.0

log = logging.getLogger("lucius.reference")


class StopReason(StrEnum):
    STALE = "STALE"  # another attempt is current, or the job has ended: nobody wants a RESULT
    CANCELLED = "CANCELLED"  # the job is being cancelled: a RESULT ends it sooner
    STOPPING = "STOPPING"  # this process ends: the attempt is given back


class Attempt:
    def __init__(self, directive: Directive) -> None:
        self.directive = directive
        self.progress = 0.0
        self.note = ""
        self.stopped: StopReason | None = None

    def stop(self, reason: StopReason) -> None:
        """The first reason stands."""
        self.stopped = self.stopped or reason

    def report(self, progress: float, note: str) -> None:
        """Called by the work, in its thread."""
        if self.stopped:
            raise WorkStopped(self.stopped)
        self.progress = min(1.0, max(0.0, progress))
        self.note = note

    def work(self, service: Service) -> dict[str, Any] | None:
        """Do the work, in a thread; the body of the RESULT, or `None` where none is to be sent."""
        try:
            outcome = service(self.directive, Workspace(self.directive.workspace_ref), self.report)
            # The last look before the world outside the workspace changes: a stale attempt must not publish.
            self.report(1.0, "writing the result")
            published = publish(self.directive.output_ref, outcome.result)
        except WorkStopped:
            return self.ended_by_stop()
        except Exception as error:
            failure = classified(error)
            if failure.code == "SERVICE_DEFECT":
                log.exception("a defect of the service %s", self.directive.service)
            return failure_body(failure)
        body: dict[str, Any] = {"status": "SUCCEEDED", "artifacts": outcome.artifacts}
        if published:
            body["output_ref"] = self.directive.output_ref
        return body

    def ended_by_stop(self) -> dict[str, Any] | None:
        if self.stopped is StopReason.CANCELLED:
            return failure_body(StepFailed("CANCELLED", "the job was cancelled while the step was in work"))
        if self.stopped is StopReason.STOPPING:
            # RATE_LIMITED is the one class that costs no attempt, and a restart is not the command's fault.
            message = "the service is stopping and gives the attempt back"
            return failure_body(StepFailed("SERVICE_STOPPING", message, "RATE_LIMITED", GIVEN_BACK_RETRY_SECONDS))
        return None


def failure_body(failure: StepFailed) -> dict[str, Any]:
    body: dict[str, Any] = {
        "status": "FAILED",
        "failure_class": failure.failure_class,
        "error": {"code": failure.code, "message": failure.message},
    }
    if failure.retry_after_seconds is not None:
        body["retry_after"] = failure.retry_after_seconds
    return body
