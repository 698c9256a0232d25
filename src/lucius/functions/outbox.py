"""Sends results until each is answered. A result counts as unsent until then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lucius.client.backoff import backoff_seconds
from lucius.functions.errors import ResultRefused
from lucius.functions.job import Result, failure
from lucius.functions.metrics import Metrics
from lucius.functions.source import JobSource, SourceFailed, SourceRefused
from lucius.kit.spool import Spool

TRY_AGAIN = frozenset({"UNAVAILABLE", "INTERNAL", "RATE_LIMITED"})
"""Error codes of a single result after which it may be sent again: nothing was decided."""

log = logging.getLogger("lucius.functions")


class Outbox:
    def __init__(self, source: JobSource, batch_max: int, settled: Callable[[str], None], metrics: Metrics) -> None:
        """`settled` is called for each job whose result is finally sent."""
        self._source = source
        self._batch_max = batch_max
        self._settled = settled
        self._metrics = metrics
        self._failures = 0
        # One call at a time: a job source is used by one task only.
        self._spool: Spool[Result] = Spool(self._send, batch_max, calls_max=1)

    def __len__(self) -> int:
        return len(self._spool)

    def add(self, result: Result) -> None:
        self._spool.add(result)
        self._metrics.owed(len(self._spool))

    async def emptied(self) -> None:
        await self._spool.emptied()

    async def send_forever(self) -> None:
        await self._spool.send_forever()

    async def _send(self, batch: list[Result]) -> float:
        progress, retry_after = await self._answer(batch)
        self._metrics.owed(len(self._spool) - len(batch))
        self._failures = 0 if progress else self._failures + 1
        return backoff_seconds(self._failures - 1, retry_after) if self._failures else 0.0

    async def _answer(self, batch: list[Result]) -> tuple[bool, float | None]:
        """Whether any result was answered, and if not, how long the server asked to wait."""
        try:
            outcomes = await self._source.answer(batch)
        except SourceRefused as error:
            self._refused(batch, error)
            return True, None
        except SourceFailed as error:
            log.warning("%d results were not answered, sending them again: %s", len(batch), error)
            self._again(batch)
            return False, error.retry_after_seconds
        except Exception:
            log.exception("%d results were not answered, a bug in the source; sending them again", len(batch))
            self._again(batch)
            return False, None
        self._spool.batch_max = min(self._batch_max, self._spool.batch_max * 2)
        of_job = {one.get("jobId"): one for one in outcomes if isinstance(one, dict)}
        answered = [self._answered(result, of_job.get(result["jobId"], {})) for result in batch]
        if not all(answered):
            log.warning("%d of %d results were not answered, sending them again", answered.count(False), len(batch))
        return any(answered), None

    def _answered(self, result: Result, answer: dict[str, Any]) -> bool:
        outcome, code = answer.get("outcome"), answer.get("code")
        if outcome:
            if outcome != "APPLIED":
                log.info("%s: the result was answered %.40s", result["jobId"], outcome)
            self._settle(result, str(outcome)[:40])
            return True
        if code and code not in TRY_AGAIN:
            self._reject(result, f"{code} {answer.get('detail') or ''}".strip())
            return True
        # At the end of the queue, so that others are not blocked.
        self._again([result])
        return False

    def _refused(self, batch: list[Result], error: SourceRefused) -> None:
        if error.denied:
            log.error("gave up on %d results, their jobs will be run again: %s", len(batch), error)
            for result in batch:
                self._settle(result, "DENIED")
        elif len(batch) > 1:
            # One bad result may fail the whole batch: halve the batch until it is found.
            self._spool.batch_max = max(1, len(batch) // 2)
            self._again(batch)
        else:
            self._reject(batch[0], str(error))

    def _reject(self, result: Result, reason: str) -> None:
        """Without an answer the step would wait for its timeout, so a rejected success is replaced by a failure."""
        log.error("%s: the result was refused: %.1000s", result["jobId"], reason)
        if result["status"] != "Success":
            self._settle(result, "REFUSED")
            return
        error = ResultRefused(f"the function succeeded, but its result was refused: {reason}")
        self._metrics.result("REFUSED")
        self._spool.add(failure(result["jobId"], result["correlationData"], error, result["durationMs"], 1))

    def _again(self, batch: list[Result]) -> None:
        for result in batch:
            self._spool.add(result)

    def _settle(self, result: Result, answer: str) -> None:
        self._metrics.result(answer)
        self._settled(result["jobId"])
