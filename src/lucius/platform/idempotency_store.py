"""The idempotency store: what became of every attempt that came here.

It answers two questions with one record. *Was this attempt here before?* An attempt is worked on once, however often
its directive is delivered. *What do we still owe?* A RESULT is kept from before it is first sent until it is answered,
so that a service that dies sends it when it is back; and work that was cut short by a death is reported as failed at
once, rather than found out when its lease ends.

    (unknown) --begin--> BEGUN --finish--> FINISHED --settle--> SETTLED
                           '----- drop ----> (unknown)
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import Retryable, failure_result

SETTLED_MAX = 100_000
INTERRUPTED = failure_result(
    Retryable("SERVICE_INTERRUPTED", "the service ended in the middle of the work and has started anew")
)


class Seen(StrEnum):
    NEW = "NEW"  # never here: it is ours now
    IN_WORK = "IN_WORK"  # begun, here or in a replica that shares the store
    FINISHED = "FINISHED"  # its RESULT is on its way
    SETTLED = "SETTLED"  # its RESULT was answered, or nobody wanted one


@dataclass(frozen=True)
class Owed:
    """A RESULT that an earlier life of this service left unanswered."""

    key: AttemptKey
    tenant_id: str
    token: str = field(repr=False)
    result: dict[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "jobId": self.key.job_id,
            "stepId": self.key.step_id,
            "tenant_id": self.tenant_id,
            "attempt_no": self.key.attempt_no,
            "lease_id": self.key.lease_id,
        }


class StoreFailed(Exception):
    """The record could not be written; what it was for must not happen."""


class IdempotencyStore(Protocol):
    """What `begin` and `finish` record is durable when they return, unless the store says otherwise."""

    async def open(self) -> list[Owed]:
        """Take possession, and say what is owed. What was begun and not finished is owed as `INTERRUPTED`."""

    async def begin(self, directive: Directive) -> Seen:
        """Claim the attempt; only one caller is ever told `NEW`."""

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        """The work is done, and this is its RESULT."""

    async def settle(self, key: AttemptKey) -> None:
        """Nothing is owed any more. May be forgotten in a crash: then the RESULT is sent once more."""

    async def drop(self, key: AttemptKey) -> None:
        """The work was never started: the attempt may come again."""

    async def close(self) -> None: ...


class MemoryStore:
    """Forgets everything with the process. The newest `SETTLED_MAX` settled attempts are remembered."""

    def __init__(self) -> None:
        self._open: dict[AttemptKey, Seen] = {}
        self._settled: OrderedDict[AttemptKey, None] = OrderedDict()

    async def open(self) -> list[Owed]:
        return []

    async def begin(self, directive: Directive) -> Seen:
        if directive.key in self._settled:
            return Seen.SETTLED
        seen = self._open.setdefault(directive.key, Seen.NEW)
        self._open[directive.key] = Seen.IN_WORK if seen is Seen.NEW else seen
        return seen

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        self._open[directive.key] = Seen.FINISHED

    async def settle(self, key: AttemptKey) -> None:
        self._open.pop(key, None)
        self._settled[key] = None
        while len(self._settled) > SETTLED_MAX:
            self._settled.popitem(last=False)

    async def drop(self, key: AttemptKey) -> None:
        self._open.pop(key, None)

    async def close(self) -> None:
        return None
