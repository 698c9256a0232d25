"""The frames' bodies by name: AMQP performatives, SASL's frames, terminus and delivery states.

Each class lists its fields in the order of the wire; numbers have a type of their own there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from lucius.testing.servicebus.codec import DecodeError, encode
from lucius.testing.servicebus.types import Array, Described, Symbol, UByte, UInt, ULong, UShort

CLIENT_SENDS, CLIENT_RECEIVES = False, True
"""The role in a client's attach."""
ROLE_SENDER, ROLE_RECEIVER = False, True


UINT, USHORT, UBYTE, ULONG = ({"wire": kind} for kind in (UInt, UShort, UByte, ULong))
FLAG, TEXT, BINARY, MAP = ({"wire": kind} for kind in (bool, str, bytes, dict))
"""The types that fields have on the wire. Where a field names none, whoever uses it looks."""
NUMBERS = (UInt, UShort, UByte, ULong)


@dataclass(slots=True, kw_only=True)
class Composite:
    CODE: ClassVar[int]
    IS_WHOLE: ClassVar[bool] = False
    """Written with its last fields even if they are null."""

    def described(self) -> Described:
        values = [_on_wire(getattr(self, one.name), one.metadata.get("wire")) for one in fields(self)]
        while values and values[-1] is None and not self.IS_WHOLE:
            values.pop()
        return Described(ULong(self.CODE), values)

    def encoded(self) -> bytes:
        return encode(self.described())


def _on_wire(value: Any, kind: Any) -> Any:
    if isinstance(value, Composite):
        return value.described()
    return kind(value) if value is not None and kind in NUMBERS else value


@dataclass(slots=True, kw_only=True)
class Open(Composite):
    CODE = 0x10
    container_id: str = field(metadata=TEXT)
    hostname: str | None = field(default=None, metadata=TEXT)
    max_frame_size: int | None = field(default=None, metadata=UINT)
    channel_max: int | None = field(default=None, metadata=USHORT)
    idle_time_out: int | None = field(default=None, metadata=UINT)


@dataclass(slots=True, kw_only=True)
class Begin(Composite):
    CODE = 0x11
    remote_channel: int | None = field(default=None, metadata=USHORT)
    next_outgoing_id: int = field(metadata=UINT)
    incoming_window: int = field(metadata=UINT)
    outgoing_window: int = field(metadata=UINT)
    handle_max: int | None = field(default=None, metadata=UINT)


@dataclass(slots=True, kw_only=True)
class Attach(Composite):
    CODE = 0x12
    name: str = field(metadata=TEXT)
    handle: int = field(metadata=UINT)
    role: bool = field(metadata=FLAG)
    snd_settle_mode: int | None = field(default=None, metadata=UBYTE)
    rcv_settle_mode: int | None = field(default=None, metadata=UBYTE)
    source: Any = None
    target: Any = None
    unsettled: Any = None
    incomplete_unsettled: bool | None = field(default=None, metadata=FLAG)
    initial_delivery_count: int | None = field(default=None, metadata=UINT)
    max_message_size: int | None = field(default=None, metadata=ULONG)
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = field(default=None, metadata=MAP)


@dataclass(slots=True, kw_only=True)
class Flow(Composite):
    CODE = 0x13
    next_incoming_id: int | None = field(default=None, metadata=UINT)
    incoming_window: int = field(metadata=UINT)
    next_outgoing_id: int = field(metadata=UINT)
    outgoing_window: int = field(metadata=UINT)
    handle: int | None = field(default=None, metadata=UINT)
    delivery_count: int | None = field(default=None, metadata=UINT)
    link_credit: int | None = field(default=None, metadata=UINT)
    available: int | None = field(default=None, metadata=UINT)
    drain: bool | None = field(default=None, metadata=FLAG)
    echo: bool | None = field(default=None, metadata=FLAG)


@dataclass(slots=True, kw_only=True)
class Transfer(Composite):
    CODE = 0x14
    handle: int = field(metadata=UINT)
    delivery_id: int | None = field(default=None, metadata=UINT)
    delivery_tag: bytes | None = field(default=None, metadata=BINARY)
    message_format: int | None = field(default=None, metadata=UINT)
    settled: bool | None = field(default=None, metadata=FLAG)
    more: bool | None = field(default=None, metadata=FLAG)
    rcv_settle_mode: int | None = field(default=None, metadata=UBYTE)
    state: Any = None
    resume: bool | None = field(default=None, metadata=FLAG)
    aborted: bool | None = field(default=None, metadata=FLAG)


@dataclass(slots=True, kw_only=True)
class Disposition(Composite):
    CODE = 0x15
    role: bool = field(metadata=FLAG)
    first: int = field(metadata=UINT)
    last: int | None = field(default=None, metadata=UINT)
    settled: bool | None = field(default=None, metadata=FLAG)
    state: Any = None


@dataclass(slots=True, kw_only=True)
class Detach(Composite):
    CODE = 0x16
    handle: int = field(metadata=UINT)
    closed: bool | None = field(default=None, metadata=FLAG)
    error: Any = None


@dataclass(slots=True, kw_only=True)
class End(Composite):
    CODE = 0x17
    error: Any = None


@dataclass(slots=True, kw_only=True)
class Close(Composite):
    CODE = 0x18
    error: Any = None


@dataclass(slots=True, kw_only=True)
class SaslMechanisms(Composite):
    CODE = 0x40
    mechanisms: Array


@dataclass(slots=True, kw_only=True)
class SaslInit(Composite):
    CODE = 0x41
    mechanism: Symbol = field(metadata=TEXT)
    initial_response: bytes | None = field(default=None, metadata=BINARY)


@dataclass(slots=True, kw_only=True)
class SaslOutcome(Composite):
    CODE = 0x44
    outcome: int = field(metadata=UBYTE)


@dataclass(slots=True, kw_only=True)
class AmqpError(Composite):
    CODE = 0x1D
    IS_WHOLE = True  # Azure's SDK reads the third field without looking whether it is there.
    condition: Symbol = field(metadata=TEXT)
    description: str | None = field(default=None, metadata=TEXT)
    info: dict[Any, Any] | None = field(default=None, metadata=MAP)


@dataclass(slots=True, kw_only=True)
class Accepted(Composite):
    CODE = 0x24


@dataclass(slots=True, kw_only=True)
class Rejected(Composite):
    CODE = 0x25
    error: Any = None


@dataclass(slots=True, kw_only=True)
class Released(Composite):
    CODE = 0x26


@dataclass(slots=True, kw_only=True)
class Modified(Composite):
    CODE = 0x27
    delivery_failed: bool | None = field(default=None, metadata=FLAG)
    undeliverable_here: bool | None = field(default=None, metadata=FLAG)
    message_annotations: dict[Any, Any] | None = field(default=None, metadata=MAP)


@dataclass(slots=True, kw_only=True)
class Source(Composite):
    CODE = 0x28
    address: str | None = field(default=None, metadata=TEXT)
    durable: int | None = field(default=None, metadata=UINT)
    expiry_policy: Symbol | None = field(default=None, metadata=TEXT)
    timeout: int | None = field(default=None, metadata=UINT)
    dynamic: bool | None = field(default=None, metadata=FLAG)
    dynamic_node_properties: Any = None
    distribution_mode: Symbol | None = field(default=None, metadata=TEXT)
    filter: dict[Any, Any] | None = field(default=None, metadata=MAP)


@dataclass(slots=True, kw_only=True)
class Target(Composite):
    CODE = 0x29
    address: str | None = field(default=None, metadata=TEXT)


_FRAMES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
_SASL = (SaslMechanisms, SaslInit, SaslOutcome)
_OTHERS = (AmqpError, Accepted, Rejected, Released, Modified, Source, Target)
BY_CODE: dict[int, type[Composite]] = {kind.CODE: kind for kind in (*_FRAMES, *_SASL, *_OTHERS)}
NUMBERS_WANTED: dict[type[Composite], tuple[str, ...]] = {
    Begin: ("next_outgoing_id", "incoming_window", "outgoing_window"),
    Attach: ("handle",),
    Flow: ("incoming_window", "next_outgoing_id"),
    Transfer: ("handle",),
    Disposition: ("first",),
    Detach: ("handle",),
}
"""Fields without which a frame means nothing."""


def read(value: Any) -> Composite:
    """The performative, terminus or state in a decoded value; fields that follow the known ones are ignored."""
    kind = BY_CODE.get(value.descriptor) if isinstance(value, Described) and isinstance(value.descriptor, int) else None
    if kind is None or not isinstance(value.value, list):
        raise DecodeError("A frame holds no performative that is known here.")
    found: dict[str, Any] = {one.name: None for one in fields(kind)}
    for one, given in zip(fields(kind), value.value, strict=False):
        wire = one.metadata.get("wire")
        if given is not None and wire is not None and not _fits(given, wire):
            raise DecodeError(f"{kind.__name__}.{one.name} is no {wire.__name__.lower()}.")
        found[one.name] = given
    for name in NUMBERS_WANTED.get(kind, ()):
        if found[name] is None:
            raise DecodeError(f"{kind.__name__} lacks {name}.")
    return kind(**found)


def _fits(given: Any, wire: type) -> bool:
    return type(given) is wire if wire in NUMBERS else isinstance(given, wire)
