"""Callbacks: checks a service's ids and token, passes the fact to the engine, and returns the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

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

KINDS: dict[type[Callback], str] = {Acked: "ACK", HeartbeatSeen: "HEARTBEAT", Resulted: "RESULT"}

_REFUSED = frozenset({Outcome.STALE_ATTEMPT, Outcome.JOB_TERMINAL, Outcome.STEP_NOT_FOUND})
"""Outcomes that tell the worker to stop."""

TermsOf = Callable[[str], Terms]
"""The terms of a tenant, given in normal form; they include where its refs may point."""


class Completion:
    """The use case: `authenticate`, `begin`, `conclude`. A batch begins all of its callbacks before it waits."""

    def __init__(
        self, engine: Engine, signer: TokenSigner, clock: Clock, observer: Observer, terms_of: TermsOf
    ) -> None:
        self._engine = engine
        self._signer = signer
        self._clock = clock
        self._observer = observer
        self._terms_of = terms_of

    def authenticate(self, ids: CallbackIds, kind: type[Callback], token: str | None) -> None:
        """Raise `CallerError` (UNAUTHENTICATED) unless the token was made for these ids; the ledger is not read."""
        if not self._signer.verifies(token, ids, self._clock.now()):
            self._observer.callback_answered(KINDS[kind], "FORGED")
            raise CallerError.of(
                "UNAUTHENTICATED", "the callback token is missing, not genuine, expired, or made for other ids"
            )

    def begin(self, ids: CallbackIds, callback: Callback) -> Awaitable[CallbackReply | None]:
        """Pass an authenticated callback to the engine."""
        if isinstance(callback, Resulted) and callback.output_ref != NULL:
            # Clients and later services follow it, like the refs of a command.
            terms = self._terms_of(ids.tenant_id)
            ref = msgspec.json.decode(callback.output_ref)
            faults = ref_faults(ref, "/output_ref", terms.refs, terms.files.writable)
            if faults:
                raise CallerError(faults)
        return self._engine.tell(ids.job_id, ids.tenant_id, callback)

    def conclude(self, ids: CallbackIds, callback: Callback, reply: CallbackReply | None) -> CallbackReply:
        """The answer to a callback, or the error that tells the worker to stop."""
        if reply is None:
            raise WorkerError.of("JOB_NOT_FOUND", f"there is no job {ids.job_id}", "/jobId")
        self._observer.callback_answered(KINDS[type(callback)], reply.outcome)
        if reply.outcome in _REFUSED:
            raise _refusal(ids, reply.outcome)
        return reply


def _refusal(ids: CallbackIds, outcome: Outcome) -> WorkerError:
    match outcome:
        case Outcome.STALE_ATTEMPT:
            detail = f"attempt {ids.attempt_no} of step {ids.step_id} is not the current one: stop working on it"
            return WorkerError.of("STALE_ATTEMPT", detail, "/attempt_no")
        case Outcome.JOB_TERMINAL:
            return WorkerError.of("JOB_TERMINAL", f"step {ids.step_id} has ended: stop working on it", "/stepId")
    return WorkerError.of("STEP_NOT_FOUND", f"job {ids.job_id} has no step {ids.step_id}", "/stepId")
