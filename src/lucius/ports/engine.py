"""The engine port: what drives a job forward. `outbox` and `temporal` are engines; both run the same `decide`."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from lucius.domain.effects import Outcome
from lucius.domain.inputs import Accepted, Callback, Operation
from lucius.domain.job import JobStatus
from lucius.ports.ledger import Claim, Duplicate, Limit, Saturated


class NewJob(Struct, frozen=True, kw_only=True):
    """A command that passed validation, with what must hold for it to become a job."""

    fact: Accepted
    claim: Claim
    limits: tuple[Limit, ...]


class Started(Struct, frozen=True):
    job_id: str
    status: JobStatus


class Told(Struct, frozen=True):
    """What came of a callback or an operation."""

    outcome: Outcome
    status: JobStatus
    cancel_requested: bool


class Engine(AbstractAsyncContextManager["Engine"], Protocol):
    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        """Make one job of one command. When this answers `Started`, the job is durable and will reach a terminal
        state, whatever crashes. Raises `InfrastructureError`, and then there is no job."""
        ...

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[Told | None]:
        """Tell a job a fact. None: there is no such job, or it is not this tenant's (None is any tenant's). When
        this answers, what it answers is durable. Raises `InfrastructureError`, and then nothing has changed."""
        ...

    async def retry_outbox(self) -> int:
        """Make every unsent row due now; how many there were."""
        ...

    async def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> bool:
        """Wait until this process has written something about the job, or its end; False if not in time. A job may also
        change elsewhere: look again at least as often as `changes_elsewhere_seconds`."""
        ...

    changes_elsewhere_seconds: float

    async def health(self) -> dict[str, Any]:
        """What it depends on and how that is; raises where it cannot work."""
        ...
