"""Runs one job and builds its result. No error of a function is raised here; all become results."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping

from lucius.functions.errors import FunctionUnknown, RateLimited, ResultInvalid, place_of, type_of
from lucius.functions.function import Arguments, Function
from lucius.functions.job import Job, Result, failure, outcome_of, success

THROTTLED_SECONDS_MAX = 20.0
"""Total time from the first throttled attempt to the last: a third of the job's lock."""

log = logging.getLogger("lucius.functions")


class Run:
    def __init__(
        self, job: Job, functions: Mapping[str, Function], *, throttle_tries: int, throttle_base_seconds: float
    ) -> None:
        self._job = job
        self._functions = functions
        self._throttle_tries = throttle_tries
        self._throttle_base_seconds = throttle_base_seconds
        self._function: Function | None = None
        self._arguments: Arguments = {}
        self._started_at = time.monotonic()
        self._tries = 0
        self._wait_seconds = 0.0
        self._throttled_until: float | None = None

    def result_without_waiting(self) -> Result | None:
        """The result, if available without waiting: of a quick function, or of a job that cannot be run."""
        try:
            self._function = self._found()
            self._arguments = self._function.bind(self._job)
        except Exception as error:
            self._tries = 1
            return self._failed(error)
        if not self._function.quick:
            return None
        self._tries = 1
        try:
            return self._succeeded(self._function.call(self._arguments))
        except BaseException as error:  # Nothing awaits here, so even a CancelledError comes from the function.
            return self._ended(error)

    async def result(self) -> Result:
        """The result, after `result_without_waiting` returned None."""
        assert self._function is not None, "call result_without_waiting first"
        while True:
            await asyncio.sleep(self._wait_seconds)
            self._tries += 1
            try:
                return self._succeeded(await self._function.called(self._arguments))
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise  # The worker stops. If the function itself raised it, it is an ordinary failure.
                return self._failed(error)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                ended = self._ended(error)
                if ended is not None:
                    return ended

    def _found(self) -> Function:
        function = self._functions.get(self._job.function_name)
        if function is None:
            known = ", ".join(sorted(self._functions))
            raise FunctionUnknown(f"this worker has no function {self._job.function_name[:100]!r}; it has {known}")
        return function

    def _succeeded(self, value: object) -> Result:
        try:
            result = success(self._job.job_id, self._job.correlation_data, value, self._duration_ms())
        except ResultInvalid as error:
            return self._failed(error)
        level = logging.DEBUG if self._function and self._function.quick else logging.INFO
        if log.isEnabledFor(level):
            name, duration = self._job.function_name, result["durationMs"]
            log.log(level, "%s %s: %s after %d ms", self._job.job_id, name, outcome_of(result), duration)
        return result

    def _ended(self, error: BaseException) -> Result | None:
        """A failure, or None if there is another attempt after `_wait_seconds`."""
        if not isinstance(error, RateLimited):
            return self._failed(error)
        now = time.monotonic()
        if self._throttled_until is None:
            self._throttled_until = now + THROTTLED_SECONDS_MAX
        self._wait_seconds = self._backoff_seconds(error.retry_after_seconds)
        if self._tries >= self._throttle_tries or now + self._wait_seconds > self._throttled_until:
            return self._failed(error, throttled=True)
        return None

    def _backoff_seconds(self, retry_after_seconds: float | None) -> float:
        if retry_after_seconds is not None:
            return max(0.0, retry_after_seconds) * random.uniform(1.0, 1.1)
        ceiling: float = self._throttle_base_seconds * 2.0 ** (self._tries - 1)
        return random.uniform(ceiling / 2, ceiling)

    def _failed(self, error: BaseException, throttled: bool = False) -> Result:
        job, duration_ms = self._job, self._duration_ms()
        outcome = "Throttled" if throttled else f"Failure ({type_of(error)}{place_of(error)})"
        log.warning(
            "%s %.100s: %s after %d ms, try %d", job.job_id, job.function_name, outcome, duration_ms, self._tries
        )
        return failure(job.job_id, job.correlation_data, error, duration_ms, self._tries, throttled)

    def _duration_ms(self) -> int:
        return int((time.monotonic() - self._started_at) * 1000)
