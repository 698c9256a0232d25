"""Messages to and from a workflow, as JSON, so that Temporal's own tools can show them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
)

from lucius.domain.effects import Event
from lucius.domain.inputs import Acked, Callback, HeartbeatSeen, Resulted
from lucius.domain.job import Job
from lucius.domain.time import Instant

WORKFLOW = "LuciusJob"


class JobStart(Struct, frozen=True, kw_only=True):
    """Input of a workflow: the job as it is in the ledger."""

    job: Job
    claim_key: bytes | None = None
    """The command's idempotency claim, needed to write a lost ledger row again."""
    is_searchable: bool = True
    """Whether search attributes are updated; they must exist in the namespace."""


class JobEnd(Struct, frozen=True):
    """Result of a workflow; the rest is in the ledger."""

    status: str
    revision: int


class StepCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of several callbacks in one signal: exactly one field is set."""

    ack: Acked | None = None
    heartbeat: HeartbeatSeen | None = None
    result: Resulted | None = None

    @classmethod
    def of(cls, fact: Callback) -> StepCallback:
        if isinstance(fact, Acked):
            return cls(ack=fact)
        return cls(result=fact) if isinstance(fact, Resulted) else cls(heartbeat=fact)

    @property
    def fact(self) -> Callback:
        fact = self.ack or self.heartbeat or self.result
        assert fact is not None, "a callback is one of the three"
        return fact


class Projection(Struct, frozen=True, kw_only=True):
    """A job's next state, for the ledger."""

    before: Job
    after: Job
    events: tuple[Event, ...]
    settled: tuple[tuple[int, int], ...] = ()
    """Step index and attempt number of directives that have reached a service, or whose attempt is over."""
    webhook_url: str | None = None


class Recorded(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an activity. Small, because the workflow's history keeps it."""

    ahead: Job | None = None
    """The ledger is ahead of the workflow, at this state: an earlier try of the same workflow task got that far before
    its worker died. Decide again based on it."""
    events: tuple[Event, ...] = ()
    """With `ahead`: events in the ledger's audit trail that the workflow does not have."""
    published_at: Instant | None = None
    """The bus took the current attempt's directive, and the ledger says so."""
    refused: str | None = None
    """Why the bus will never take the directive."""
    is_deferred: bool = False
    """The bus was unreachable."""
    is_held: bool = False
    """The directive waits for its tenant's cap."""
    held_at: Instant | None = None
    """Since then, and the ledger says so; None if it said so before."""


class _StructConverter(EncodingPayloadConverter):
    """Structs as plain JSON. Types without one (search attributes, strings) are left to Temporal's own converter."""

    def __init__(self) -> None:
        self._others = JSONPlainPayloadConverter()

    @property
    def encoding(self) -> str:
        return "json/plain"

    def to_payload(self, value: Any) -> Payload | None:
        return Payload(metadata={"encoding": b"json/plain"}, data=msgspec.json.encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        if type_hint is None:
            return self._others.from_payload(payload, None)
        return msgspec.json.decode(payload.data, type=type_hint)


class _Converters(CompositePayloadConverter):
    def __init__(self) -> None:
        defaults = DefaultPayloadConverter.default_encoding_payload_converters
        kept = (one for one in defaults if not isinstance(one, JSONPlainPayloadConverter))
        super().__init__(*kept, _StructConverter())


DATA_CONVERTER = DataConverter(payload_converter_class=_Converters)
