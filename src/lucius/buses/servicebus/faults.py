"""What went wrong on Service Bus, in a sentence, and what is to be done: wait, stop and tell, or nothing."""

from __future__ import annotations

import logging
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from lucius.ports.bus import BusUnavailable

log = logging.getLogger("lucius.bus")

DETAIL_CHARS_MAX = 300

SDK_FAULTS = (TypeError, AttributeError, RuntimeError)
"""What the SDK raises from inside if two calls on a receiver find at once that its connection broke."""
CALL_ERRORS = (AzureError, ServiceBusError, OSError, TimeoutError, ValueError, *SDK_FAULTS)
"""What a call of the SDK may raise. `ValueError` is a handler that was closed meanwhile."""
LOCK_LOST = (MessageLockLostError, MessageAlreadySettled)
"""An expected duplicate: the message is delivered once more."""


class Kind(Enum):
    AWAY = "away"
    """Tried again soon."""
    BUSY = "busy"
    """Tried again after ten seconds, as the service asks for."""
    FULL = "full"
    """Backpressure: somebody has to take messages out."""
    WRONG = "wrong"
    """Somebody has to change something: it is told and tried again from time to time."""


def kind_of(error: BaseException) -> Kind:
    if isinstance(error, ServiceBusServerBusyError):
        return Kind.BUSY
    if isinstance(error, ServiceBusQuotaExceededError) or _is_full(error):
        return Kind.FULL
    wrong = (
        MessagingEntityNotFoundError,
        MessagingEntityDisabledError,
        ServiceBusAuthenticationError,
        ServiceBusAuthorizationError,
        ClientAuthenticationError,
    )
    return Kind.WRONG if isinstance(error, wrong) else Kind.AWAY


def sentence(error: BaseException, entity: str, location: str) -> str:
    """What happened, to what, and what to do."""
    said = " ".join(str(error).split())[:DETAIL_CHARS_MAX] or type(error).__name__
    if isinstance(error, MessagingEntityNotFoundError):
        return f"{entity} is missing on Service Bus at {location}: run `lucius bus provision`"
    if isinstance(error, MessagingEntityDisabledError):
        return f"{entity} is disabled on Service Bus at {location}: enable it. ({said})"
    if isinstance(error, ServiceBusAuthenticationError | ServiceBusAuthorizationError | ClientAuthenticationError):
        return (
            f"Service Bus at {location} refuses this process at {entity}: the key is wrong, the token has expired, or a"
            f" right is missing; check LUCIUS_SERVICEBUS_CONNECTION or LUCIUS_AZURE_CREDENTIAL. ({said})"
        )
    match kind_of(error):
        case Kind.BUSY:
            return f"Service Bus at {location} is busy at {entity}: tried again in 10 s. ({said})"
        case Kind.FULL:
            return f"{entity} on Service Bus at {location} is full: messages wait until there is room. ({said})"
    if isinstance(error, OperationTimeoutError | TimeoutError):
        return f"Service Bus at {location} does not answer about {entity}. ({said})"
    return f"Service Bus at {location} is out of reach for {entity}. ({said})"


def _is_full(error: BaseException) -> bool:
    return "resource-limit-exceeded" in str(error)


class Problems:
    """What is wrong now, by entity; each is logged when it begins and when it ends."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._known: dict[str, tuple[Kind, str]] = {}

    def met(self, entity: str, error: BaseException) -> BusUnavailable:
        """Notes it, and returns what to raise."""
        text = sentence(error, entity, self.location)
        kind = kind_of(error)
        if self._known.get(entity, (None, ""))[0] is not kind:
            log.error("%s", text)
        self._known[entity] = (kind, text)
        return BusUnavailable(text)

    def gone(self, entity: str) -> None:
        if self._known.pop(entity, None) is not None:
            log.warning("%s on Service Bus at %s works again", entity, self.location)

    def entities(self) -> list[str]:
        return list(self._known)

    def sentences(self) -> list[str]:
        return [text for _, text in self._known.values()]
