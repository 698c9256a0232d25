"""Callbacks: checks a service's ids and token, passes the fact to the engine, and returns the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from lucius.domain.attempt import NULL
from lucius.domain.callbacks import CallbackIds, TokenSigner
from lucius.domain.effects import Outcome
from lucius.domain.envelope import Terms
from lucius.domain.errors import CallerError, WorkerError
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.refs import ref_faults
from lucius.ports.clock import Clock
from lucius.ports.engine import CallbackReply, Engine
from lucius.ports.observer import Observer
from lucius.usecases.callback_bodies import FACTS, AnyBody, fact_of

KINDS: dict[type[Callback], str] = {Acked: "ACK", HeartbeatSeen: "HEARTBEAT", Resulted: "RESULT"}

_REFUSED = frozenset({Outcome.STALE_ATTEMPT, Outcome.JOB_TERMINAL, Outcome.STEP_NOT_FOUND})
"""Outcomes that tell the worker to stop."""

TermsOf = Callable[[str], Terms]
"""The terms of a tenant, given in normal form; they include where its refs may point."""


class PendingCallback(NamedTuple):
    """A callback that was passed to the engine."""

    ids: CallbackIds
    fact: Callback
    answer: Awaitable[CallbackReply | None]
    traceparent: str | None

    @property
    def kind(self) -> str:
        return KINDS[type(self.fact)]


class Completion:
    """The use case, for callbacks over HTTP and over the bus: `begin`, then `conclude`. A batch begins all of its
    callbacks before it waits for the first."""

    def __init__(
        self,
        engine: Engine,
        signer: TokenSigner,
        clock: Clock,
        observer: Observer,
        terms_of: TermsOf,
        artifacts_bytes_max: int,
    ) -> None:
        self._engine = engine
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._terms_of = terms_of
        self._artifacts_bytes_max = artifacts_bytes_max

    def begin(self, body: AnyBody, token: str | None) -> PendingCallback:
        """Check a callback and pass it to the engine. Raises `CallerError`; without a genuine token the ledger is not
        read."""
        ids = body.ids()
        self._authenticate(ids, FACTS[type(body)], token)
        fact = fact_of(body, self._artifacts_bytes_max)
        return PendingCallback(ids, fact, self._tell(ids, fact), body.traceparent)

    async def conclude(self, pending: PendingCallback) -> CallbackReply:
        """The answer to a callback, or the error that tells the worker to stop."""
        return self.read(pending, await pending.answer)

    def read(self, pending: PendingCallback, reply: CallbackReply | None) -> CallbackReply:
        """The same, if the engine has answered already."""
        ids = pending.ids
        if reply is None:
            raise WorkerError.of("JOB_NOT_FOUND", f"there is no job {ids.job_id}", "/jobId")
        self._observer.callback_answered(pending.kind, reply.outcome)
        if reply.outcome in _REFUSED:
            raise _refusal(ids, reply.outcome)
        return reply

    def _authenticate(self, ids: CallbackIds, kind: type[Callback], token: str | None) -> None:
        if not self._signer.verifies(token, ids, self._clock.now()):
            self._observer.callback_answered(KINDS[kind], "FORGED")
            raise CallerError.of(
                "UNAUTHENTICATED", "the callback token is missing, not genuine, expired, or made for other ids"
            )

    def _tell(self, ids: CallbackIds, callback: Callback) -> Awaitable[CallbackReply | None]:
        if isinstance(callback, Resulted) and callback.output_ref != NULL:
            # Clients and later services follow it, like the refs of a command.
            terms = self._terms_of(ids.tenant_id)
            ref = msgspec.json.decode(callback.output_ref)
            faults = ref_faults(ref, "/output_ref", terms.refs, terms.files.writable)
            if faults:
                raise CallerError(faults)
        return self._engine.tell(ids.job_id, ids.tenant_id, callback)


def _refusal(ids: CallbackIds, outcome: Outcome) -> WorkerError:
    match outcome:
        case Outcome.STALE_ATTEMPT:
            detail = f"attempt {ids.attempt_no} of step {ids.step_id} is not the current one: stop working on it"
            return WorkerError.of("STALE_ATTEMPT", detail, "/attempt_no")
        case Outcome.JOB_TERMINAL:
            return WorkerError.of("JOB_TERMINAL", f"step {ids.step_id} has ended: stop working on it", "/stepId")
    return WorkerError.of("STEP_NOT_FOUND", f"job {ids.job_id} has no step {ids.step_id}", "/stepId")
