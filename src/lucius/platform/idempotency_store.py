"""The idempotency store: the state of every attempt delivered to this service.

One record answers two questions. *Was this attempt delivered before?* An attempt is worked on once, however often its
directive is delivered. *Which RESULTs are unanswered?* A RESULT is kept from before it is first sent until it is
answered, so that a service that dies sends it after its restart; and work interrupted by a crash is reported as failed
at once, rather than when its lease ends.

    (unknown) --begin--> BEGUN --finish--> FINISHED --settle--> SETTLED
                           '----- drop ----> (unknown)
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import Retryable, failure_result

SETTLED_MAX = 100_000
INTERRUPTED = failure_result(Retryable("SERVICE_INTERRUPTED", "the service ended during the work and has restarted"))
_INTERRUPTED_JSON = json.dumps(INTERRUPTED)

REPLY_LANE = "reply_lane"
"""Kept with a RESULT and not sent: the lane that it goes back on, over the bus."""


def reply_lane(directive: Directive) -> dict[str, Any]:
    return {} if directive.lane is None else {REPLY_LANE: directive.lane}


def interrupted(directive: Directive) -> str:
    """The RESULT of an attempt that its process does not survive, as JSON."""
    context = directive.context() | reply_lane(directive)
    return f"{_INTERRUPTED_JSON[:-1]}, {json.dumps(context)[1:]}" if context else _INTERRUPTED_JSON


class Seen(StrEnum):
    NEW = "NEW"  # not seen before: now claimed
    IN_WORK = "IN_WORK"  # begun, here or in a replica that shares the store
    FINISHED = "FINISHED"  # its RESULT is being sent
    SETTLED = "SETTLED"  # its RESULT was answered, or none was wanted


@dataclass(frozen=True)
class Owed:
    """A RESULT that this service left unanswered before its restart."""

    key: AttemptKey
    tenant_id: str
    token: str = field(repr=False)
    result: dict[str, Any]

    @property
    def lane(self) -> int:
        """Any is right where it is not known: whoever takes replies takes them from all lanes."""
        return int(self.result.get(REPLY_LANE, 0))

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
    """The record could not be written; the recorded action must not happen."""


class IdempotencyStore(Protocol):
    """Records of `begin` and `finish` are durable when they return, unless the store says otherwise."""

    async def open(self) -> list[Owed]:
        """Open the store and return the unanswered RESULTs. Attempts begun and not finished become `INTERRUPTED`."""

    async def begin(self, directive: Directive) -> Seen:
        """Claim the attempt; only one caller ever gets `NEW`."""

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        """The work is done, and this is its RESULT."""

    async def settle(self, key: AttemptKey) -> None:
        """The RESULT is answered. A crash may lose this record: then the RESULT is sent once more."""

    async def drop(self, key: AttemptKey) -> None:
        """The work was never started: the attempt may be delivered again."""

    async def close(self) -> None: ...


class MemoryStore:
    """Loses everything with the process. Keeps the newest `SETTLED_MAX` settled attempts."""

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
