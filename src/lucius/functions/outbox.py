"""Results on their way out.

Those that gather while a call is under way leave together in the next; one that is alone leaves at once. Each stays
here until it is answered, so what is unsent can be counted, and a job that comes a second time can be known.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

from lucius.functions.errors import ResultRefused
from lucius.functions.job import Result, failure
from lucius.functions.source import JobSource, SourceFailed, SourceRefused, backoff_seconds

TRY_AGAIN = frozenset({"UNAVAILABLE", "INTERNAL", "RATE_LIMITED"})
"""Codes of a single result after which it may be sent again: nothing was decided."""

log = logging.getLogger("lucius.functions")


class Outbox:
    def __init__(self, source: JobSource, batch_max: int, settled: Callable[[str], None]) -> None:
        """`settled` is told of each job whose result has left for good."""
        self._source = source
        self._batch_max = self._batch_now = batch_max
        self._settled = settled
        self._unsent: dict[str, Result] = {}
        self._something_waits = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._unsent)

    def add(self, result: Result) -> None:
        self._unsent[result["jobId"]] = result
        self._something_waits.set()
        self._is_empty.clear()

    async def emptied(self) -> None:
        await self._is_empty.wait()

    async def send_forever(self) -> None:
        failures = 0
        while True:
            await self._something_waits.wait()
            batch = list(itertools.islice(self._unsent.values(), self._batch_now))
            progress, asked = await self._send(batch)
            failures = 0 if progress else failures + 1
            if failures:
                await asyncio.sleep(backoff_seconds(failures - 1, asked))

    async def _send(self, batch: list[Result]) -> tuple[bool, float | None]:
        """Whether it got anywhere, and if not, how long the server asked to wait."""
        try:
            outcomes = await self._source.answer(batch)
        except SourceRefused as error:
            self._refused(batch, error)
            return True, None
        except SourceFailed as error:
            log.warning("%d results are not answered yet, and sent again: %s", len(batch), error)
            return False, error.retry_after_seconds
        except Exception:
            log.exception("%d results are not answered yet: a defect of the source; sent again", len(batch))
            return False, None
        self._batch_now = min(self._batch_max, self._batch_now * 2)
        of_job = {one.get("jobId"): one for one in outcomes if isinstance(one, dict)}
        answered = [self._answered(result, of_job.get(result["jobId"], {})) for result in batch]
        if not all(answered):
            log.warning("%d of %d results are not answered yet, and sent again", answered.count(False), len(batch))
        return any(answered), None

    def _answered(self, result: Result, answer: dict[str, Any]) -> bool:
        outcome, code = answer.get("outcome"), answer.get("code")
        if outcome:
            if outcome != "APPLIED":
                log.info("%s: the result was answered %.40s", result["jobId"], outcome)
            self._drop(result["jobId"])
            return True
        if code and code not in TRY_AGAIN:
            self._reject(result, f"{code} {answer.get('detail') or ''}".strip())
            return True
        # It goes to the end of the line, so that others get past it.
        self._unsent[result["jobId"]] = self._unsent.pop(result["jobId"])
        return False

    def _refused(self, batch: list[Result], error: SourceRefused) -> None:
        if error.denied:
            log.error("%d results are given up, their jobs will be run again: %s", len(batch), error)
            for result in batch:
                self._drop(result["jobId"])
        elif len(batch) > 1:
            # One result may spoil it for all: smaller batches, down to one alone, find it.
            self._batch_now = max(1, len(batch) // 2)
        else:
            self._reject(batch[0], str(error))

    def _reject(self, result: Result, reason: str) -> None:
        """Without an answer the step would wait for its timeout, so a success that is not taken becomes a failure."""
        log.error("%s: the result is refused: %.1000s", result["jobId"], reason)
        if result["status"] != "Success":
            self._drop(result["jobId"])
            return
        error = ResultRefused(f"the function succeeded, but its result was refused: {reason}")
        told = failure(result["jobId"], result["correlationData"], error, result["durationMs"], 1)
        self._unsent[result["jobId"]] = told

    def _drop(self, job_id: str) -> None:
        del self._unsent[job_id]
        if not self._unsent:
            self._something_waits.clear()
            self._is_empty.set()
        self._settled(job_id)
