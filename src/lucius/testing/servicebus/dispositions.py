"""What a receiver's disposition asks for, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.performatives import AmqpError, Composite, Modified, Rejected, Released, read
from lucius.testing.servicebus.stored import Outcome
from lucius.testing.servicebus.types import Described

Settlement = Callable[[Message], tuple[Outcome, Message | None, tuple[str, str]]]
"""From the message as it is to what becomes of it."""


def settlement_of(state: Composite) -> Settlement:
    if isinstance(state, Rejected):
        return lambda message: _dead_lettered(state, message)
    if isinstance(state, Modified):
        outcome = Outcome.DEFER if state.undeliverable_here else Outcome.ABANDON
        return lambda message: (outcome, changed(message, state.message_annotations), ("", ""))
    if isinstance(state, Released):
        return lambda message: (Outcome.RELEASE, None, ("", ""))
    return lambda message: (Outcome.COMPLETE, None, ("", ""))


def changed(message: Message, properties: Any) -> Message | None:
    """The message with properties that the receiver sets with its settlement."""
    if not isinstance(properties, Mapping) or not properties:
        return None
    return message.with_application_properties({str(key): value for key, value in properties.items()})


def _dead_lettered(state: Rejected, message: Message) -> tuple[Outcome, Message | None, tuple[str, str]]:
    error = read(state.error) if isinstance(state.error, Described) else state.error
    info = error.info if isinstance(error, AmqpError) and isinstance(error.info, dict) else {}
    told = {str(key): value for key, value in info.items()}
    reason = str(told.pop("DeadLetterReason", None) or "")
    fallback = error.description if isinstance(error, AmqpError) else None
    description = str(told.pop("DeadLetterErrorDescription", None) or fallback or "")
    return Outcome.DEAD_LETTER, changed(message, told), (reason, description)


def echo_of(state: Composite) -> Composite:
    """Answered with the outcome that was carried out. A rejection is echoed without its error: that would say no."""
    if isinstance(state, Rejected):
        return Rejected()
    return state
