"""Step functions and how they are run.

Plain functions run in threads, async ones in a separate event loop: neither can block heartbeats, however long it
computes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucius.kit.threads import in_thread
from lucius.kit.work_loop import WorkLoop
from lucius.platform.attempt import Attempt, publishes, stopped_result, success_result
from lucius.platform.errors import classified, failure_result
from lucius.platform.frames import last_frames
from lucius.platform.workspace import Workspace

REHEARSED_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02
WORK_THREADS_MAX = 64
"""For all calls of async steps to `asyncio.to_thread` together."""

StepFunction = Callable[..., Any]
Outcome = dict[str, Any] | None
"""The body of a RESULT, or `None` if none is wanted."""

log = logging.getLogger("lucius.platform")


@dataclass(frozen=True)
class Step:
    step_type: str
    function: StepFunction
    eager: bool
    takes_attempt: bool
    is_async: bool
    timeout: float | None
    """How many seconds one attempt may take."""

    @classmethod
    def of(cls, step_type: str, function: StepFunction, eager: bool, timeout: float | None = None) -> Step:
        """Raises `TypeError` for a function that cannot be called with a directive and a workspace."""
        if not step_type:
            raise TypeError("a step needs its type in protocols, such as 'OCR'")
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(function).parameters.values()
        needed = [one for one in parameters if one.kind in kinds and one.default is one.empty]
        if len(needed) not in (2, 3):
            name = getattr(function, "__name__", "the function")
            raise TypeError(f"{name} must take (directive, workspace) or (directive, workspace, attempt)")
        if timeout is not None and not _is_positive(timeout):
            raise ValueError(f"timeout={timeout!r} of step {step_type} is not a positive number of seconds")
        takes_attempt, is_async = len(needed) == 3, inspect.iscoroutinefunction(function)
        return cls(step_type, function, eager, takes_attempt, is_async, timeout)

    def call(self, attempt: Attempt, workspace: Workspace) -> Any:
        arguments = (attempt.directive, workspace, attempt)
        return self.function(*arguments[: 3 if self.takes_attempt else 2])


def _is_positive(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf


class StepRunner:
    """Runs steps for one event loop. The caller limits how many run at once."""

    def __init__(self, rehearsing: bool = False, has_frames: bool = True) -> None:
        """`has_frames`: whether a failure tells where it was raised."""
        self._rehearsing = rehearsing
        self._has_frames = has_frames
        self._work_loop: WorkLoop[Outcome] | None = None

    def start(self, step: Step, attempt: Attempt) -> asyncio.Future[Outcome]:
        """The outcome, once the work has really ended: a thread cannot be stopped from outside."""
        if step.is_async:
            if self._work_loop is None:
                self._work_loop = WorkLoop(WORK_THREADS_MAX)
            return self._work_loop.start(self._async_outcome(step, attempt))
        return in_thread(lambda: self._plain_outcome(step, attempt), attempt.directive.label)

    def close(self) -> None:
        if self._work_loop is not None:
            self._work_loop.stop()
            self._work_loop = None

    def _plain_outcome(self, step: Step, attempt: Attempt) -> Outcome:
        try:
            workspace = attempt.workspace()
            self._rehearse(attempt)
            attempt.check()  # If already cancelled, by the answer to its ACK say, do not begin.
            return success_result(attempt, workspace, step.call(attempt, workspace))
        except Exception as error:
            return self._failed(attempt, error)

    async def _async_outcome(self, step: Step, attempt: Attempt) -> Outcome:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        try:
            attempt.when_stopped(lambda: _cancel(loop, task))
            workspace = attempt.workspace()
            if self._rehearsing:
                await asyncio.to_thread(self._rehearse, attempt)
            attempt.check()
            returned = await step.call(attempt, workspace)
            if not publishes(attempt, returned):
                return success_result(attempt, workspace, returned)
            return await asyncio.to_thread(success_result, attempt, workspace, returned)
        except asyncio.CancelledError:
            if attempt.stopped is None:
                return self._failed(attempt, RuntimeError("the step function was cancelled by its own code"))
            return stopped_result(attempt)
        except (SystemExit, KeyboardInterrupt) as error:
            # Unhandled, it would end the loop that all async steps share.
            return self._failed(attempt, RuntimeError(f"the step function raised {type(error).__name__}: {error}"))
        except Exception as error:
            return self._failed(attempt, error)

    def _failed(self, attempt: Attempt, error: Exception) -> Outcome:
        if attempt.stopped:
            # Stopped work fails in all sorts of ways, none of which matter.
            return stopped_result(attempt)
        failure = classified(error)
        if failure.code == "SERVICE_DEFECT":
            log.error("%s: a bug in the service", attempt.directive.label, exc_info=error)
        return failure_result(failure, last_frames(error) if self._has_frames else ())

    def _rehearse(self, attempt: Attempt) -> None:
        if not self._rehearsing:
            return
        until = time.monotonic() + min(attempt.directive.rehearsed_seconds, REHEARSED_SECONDS_MAX)
        while time.monotonic() < until:
            attempt.check()
            time.sleep(LOOK_SECONDS)


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    with contextlib.suppress(RuntimeError):  # The loop has ended, and the task with it.
        loop.call_soon_threadsafe(task.cancel)
