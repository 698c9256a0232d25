"""The engine port: what drives a job forward. `outbox` and `temporal` are engines; both run the same `decide`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from lucius.domain.effects import Outcome
from lucius.domain.inputs import Accepted, Callback, Operation
from lucius.domain.job import Job, JobStatus
from lucius.ports.bus import Delivery
from lucius.ports.ledger import Claim, Duplicate, Limit, Saturated
from lucius.ports.readiness import Check


class NewJob(Struct, frozen=True, kw_only=True):
    """A command that passed validation, with the conditions for it to become a job."""

    fact: Accepted
    claim: Claim
    limits: tuple[Limit, ...]


class Started(Struct, frozen=True):
    job_id: str
    status: JobStatus


class CallbackReply(Struct, frozen=True):
    """The outcome of a callback or an operation."""

    outcome: Outcome
    status: JobStatus
    cancel_requested: bool


class OutboxRetry(Struct, frozen=True):
    """What became of the wish to publish everything now."""

    retried: int
    """Directives that are being published now."""
    waiting: int = 0
    """Directives that could not be made due."""
    problem: str | None = None
    """Why not."""


class Engine(AbstractAsyncContextManager["Engine"], Protocol):
    def submit(self, new: NewJob) -> Awaitable[Started | Duplicate | Saturated]:
        """Create a job from a command. When this returns `Started`, the job is durable and will reach a terminal
        state, whatever crashes. Raises `InfrastructureError`, and then there is no job."""
        ...

    def tell(self, job_id: str, tenant_id: str | None, fact: Callback | Operation) -> Awaitable[CallbackReply | None]:
        """Apply a fact to a job. Returns None if there is no such job or it belongs to another tenant (`tenant_id` None
        matches any). When this returns, the outcome is durable. Raises `InfrastructureError`, and then nothing has
        changed."""
        ...

    async def newest(self, job: Job) -> Job:
        """The current state of a job that was read from the ledger, which may lag behind the engine. Raises
        `InfrastructureError` if the state is not known now."""
        ...

    async def drop_past(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Settle those of these directives whose attempt is over or has reached a service, as far as the ledger
        knows, and return the others, in order. Raises `InfrastructureError`, and then all are deliverable again."""
        ...

    async def retry_outbox(self) -> OutboxRetry:
        """Make every unsent row due now, and every step that waits because the bus refused its row."""
        ...

    def wait_for_change(self, job_id: str, timeout_seconds: float, until_ended: bool = False) -> asyncio.Future[bool]:
        """Wait until this process writes a change of the job, or its end, or may have been told of one by another
        process; False if it times out. What is written after this call counts, even before it is awaited. Other
        processes may change the job without telling: look again at least every `changes_elsewhere_seconds`."""
        ...

    @property
    def changes_elsewhere_seconds(self) -> float: ...

    def checks(self) -> list[Check]:
        """Checks of its own parts and of what it depends on besides ledger and bus."""
        ...
