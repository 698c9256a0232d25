"""One running attempt: the communication between work and service, and its result."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from lucius.platform.blob_path import BlobPath
from lucius.platform.directive import Directive
from lucius.platform.errors import NonRetryable, RateLimited, WorkStopped, failure_result
from lucius.platform.file_roots import FileRoots
from lucius.platform.remote_files import RemoteFiles
from lucius.platform.workspace import Workspace

ARTIFACTS_BYTES_MAX = 64 * 1024
GIVEN_BACK_RETRY_SECONDS = 1.0
NOTE_CHARACTERS_MAX = 1_024


class StopReason(StrEnum):
    STALE = "STALE"  # another attempt is current, or the job has ended: no RESULT is wanted
    CANCELLED = "CANCELLED"  # the job is being cancelled: a RESULT ends it sooner
    STOPPING = "STOPPING"  # this process is stopping: the attempt is given back


@dataclass(frozen=True)
class Result:
    """Return value of a step function with more than artifacts."""

    artifacts: Mapping[str, Any] = field(default_factory=dict)
    """For the ledger and later steps: small JSON, mostly refs."""
    output: Path | BlobPath | None = None
    """The step's result file: what `workspace.write` returned, or a file on this machine. After the last step it is
    copied to the command's `output_ref`."""


class Attempt:
    """Passed to a step function as its third argument, if it takes one. All methods are thread-safe."""

    def __init__(self, directive: Directive, files: FileRoots | None = None, remote: RemoteFiles | None = None) -> None:
        self.directive = directive
        self._files = files
        self._remote = remote
        self.progress = 0.0
        self.note = ""
        self.stopped: StopReason | None = None
        self._lock = threading.Lock()
        self._when_stopped: list[Callable[[], None]] = []

    def report(self, progress: float, note: str = "") -> None:
        """Report progress from 0 to 1. Raises `WorkStopped` when the work must end."""
        self.check()
        self.progress = min(1.0, max(0.0, float(progress)))
        self.note = note.encode("utf-8", "replace").decode("utf-8")[:NOTE_CHARACTERS_MAX]

    def check(self) -> None:
        """Raises `WorkStopped` if the attempt is no longer current or the job is being cancelled."""
        if self.stopped:
            raise WorkStopped(self.stopped)

    def stop(self, reason: StopReason) -> None:
        """The first reason is kept, unless the attempt has become stale since."""
        with self._lock:
            if self.stopped is None or reason is StopReason.STALE:
                self.stopped = reason
            callbacks, self._when_stopped = self._when_stopped, []
        for callback in callbacks:
            callback()

    def when_stopped(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self.stopped is None:
                self._when_stopped.append(callback)
                return
        callback()

    def workspace(self) -> Workspace:
        return Workspace(self.directive, self.check, self._files, self._remote)


def success_result(attempt: Attempt, workspace: Workspace, returned: Any) -> dict[str, Any]:
    """The RESULT of finished work: its checked return value; after the last step, the output is published."""
    made = returned if isinstance(returned, Result) else Result(artifacts={} if returned is None else returned)
    given: object = made.artifacts
    if not isinstance(given, Mapping):
        kind = type(given).__name__
        raise NonRetryable("ARTIFACTS_INVALID", f"a step must return a dict, a Result or None, not {kind}")
    artifacts = dict(given)
    try:
        # Encoded as on the wire, because the orchestrator measures that.
        text = json.dumps(artifacts, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode("utf-8"))
    except (TypeError, ValueError, RecursionError) as error:
        raise NonRetryable("ARTIFACTS_INVALID", f"the artifacts are not JSON: {error}") from error
    if size > ARTIFACTS_BYTES_MAX:
        detail = f"the artifacts have {size} bytes; at most {ARTIFACTS_BYTES_MAX} fit: write a file and return its ref"
        raise NonRetryable("ARTIFACTS_TOO_LARGE", detail)
    result: dict[str, Any] = {"status": "SUCCEEDED", "artifacts": artifacts}
    if attempt.stopped is StopReason.CANCELLED:
        return result  # The step has succeeded, but the job's output is no longer needed.
    # The last check before anything outside the workspace changes: a stale attempt must not publish.
    attempt.check()
    if made.output is not None and attempt.directive.last_step:
        workspace.publish(made.output)
        result["output_ref"] = attempt.directive.output_ref
    return result


def publishes(attempt: Attempt, returned: Any) -> bool:
    """Whether making the RESULT copies a file, which may take long."""
    return isinstance(returned, Result) and returned.output is not None and attempt.directive.last_step


def stopped_result(attempt: Attempt) -> dict[str, Any] | None:
    """The RESULT of stopped work, or `None` if none is wanted."""
    if attempt.stopped is StopReason.CANCELLED:
        return failure_result(NonRetryable("CANCELLED", "the job was cancelled while the step was running"))
    if attempt.stopped is StopReason.STOPPING:
        # RATE_LIMITED is the only class that costs no attempt, and a restart is not the command's fault.
        message = "the service is stopping and gives the attempt back"
        return failure_result(RateLimited("SERVICE_STOPPING", message, GIVEN_BACK_RETRY_SECONDS))
    return None
