"""What went wrong on Service Bus, in a sentence, and what is to be done: wait, stop and tell, or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from types import TracebackType
from typing import Any

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
CANCEL_AGAIN_SECONDS = 0.2


class SdkFault(Exception):
    """The SDK failed with an error of Python's, as it does if its connection breaks."""


CALL_ERRORS = (AzureError, ServiceBusError, OSError, TimeoutError, SdkFault)
"""What is raised inside `sdk_call`, besides defects of LUCIUS."""
LOCK_LOST = (MessageLockLostError, MessageAlreadySettled)
"""An expected duplicate: the message is delivered once more."""
_PUBLIC = (*CALL_ERRORS, *LOCK_LOST, StopAsyncIteration)
"""What the SDK raises by design, the end of its iterator included."""


@asynccontextmanager
async def sdk_call(seconds: float) -> AsyncIterator[None]:
    """Around every call of the SDK. If two calls on a receiver find at once that its connection broke, or its handler
    was closed meanwhile, the SDK raises what a programming error would raise (`TypeError`, `AttributeError`,
    `RuntimeError`, `ValueError`) or an error of its inner layers: that becomes `SdkFault`. The same from code of LUCIUS
    is a defect, and passes."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except Exception as error:
        if isinstance(error, _PUBLIC) or not _was_raised_by_sdk(error.__traceback__):
            raise
        raise SdkFault(f"{type(error).__name__} in the SDK: {error}") from error


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that call the SDK until they have ended. The SDK reads frames inside `asyncio.wait_for`: until
    Python 3.12, that passes over being cancelled if its time is up, or its answer there, at the same moment."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


def _was_raised_by_sdk(trace: TracebackType | None) -> bool:
    """Whether the innermost frame that is Azure's or LUCIUS's is Azure's: the SDK may fail in asyncio."""
    raised_by = ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        raised_by = package if package in ("azure", "lucius") else raised_by
        trace = trace.tb_next
    return raised_by == "azure"


class EntityUnavailable(BusUnavailable):
    """One topic or subscription is full, busy, disabled or missing; others may work."""


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
    is_wrong = isinstance(error, MessagingEntityNotFoundError | MessagingEntityDisabledError) or _is_refused(error)
    return Kind.WRONG if is_wrong or not isinstance(error, CALL_ERRORS) else Kind.AWAY


def sentence(error: BaseException, entity: str, location: str) -> str:
    """What happened, to what, and what to do."""
    said = " ".join(str(error).split())[:DETAIL_CHARS_MAX] or type(error).__name__
    if isinstance(error, MessagingEntityNotFoundError):
        return f"{entity} is missing on Service Bus at {location}: run `lucius bus provision`"
    if isinstance(error, MessagingEntityDisabledError):
        return f"{entity} is disabled on Service Bus at {location}: enable it. ({said})"
    if _is_refused(error):
        return (
            f"Service Bus at {location} refuses this process at {entity}: the key is wrong, the token has expired, or a"
            f" right is missing; check LUCIUS_SERVICEBUS_CONNECTION or LUCIUS_AZURE_CREDENTIAL. ({said})"
        )
    if not isinstance(error, CALL_ERRORS):
        return f"{entity}: LUCIUS itself failed, and tries again: {type(error).__name__}: {said}. Report this defect."
    if isinstance(error, SdkFault):
        return f"Azure's SDK failed with {entity} on Service Bus at {location}, and is tried again. ({said})"
    match kind_of(error):
        case Kind.BUSY:
            return f"Service Bus at {location} is busy at {entity}: tried again in 10 s. ({said})"
        case Kind.FULL:
            return f"{entity} on Service Bus at {location} is full: messages wait until there is room. ({said})"
    if isinstance(error, OperationTimeoutError | TimeoutError):
        return f"Service Bus at {location} does not answer about {entity}. ({said})"
    return f"Service Bus at {location} is out of reach for {entity}. ({said})"


def _is_refused(error: BaseException) -> bool:
    """By the namespace, or by whoever issues tokens for the credential: the SDK wraps what it does not know."""
    refusals = ServiceBusAuthenticationError | ServiceBusAuthorizationError | ClientAuthenticationError
    return isinstance(error, refusals) or isinstance(getattr(error, "inner_exception", None), refusals)


def _is_about_entity(error: BaseException) -> bool:
    """Whether the service answered, and what it said holds for this entity alone."""
    is_unusable = isinstance(error, MessagingEntityNotFoundError | MessagingEntityDisabledError)
    return is_unusable or kind_of(error) in (Kind.BUSY, Kind.FULL)


def _is_full(error: BaseException) -> bool:
    return "resource-limit-exceeded" in str(error)


class Problems:
    """What is wrong now, by entity; each is logged when it begins and when it ends."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._known: dict[str, tuple[Kind, BusUnavailable]] = {}

    def met(self, entity: str, error: BaseException) -> BusUnavailable:
        """Notes it, and returns what to raise."""
        text = sentence(error, entity, self.location)
        kind = kind_of(error)
        if self.kind(entity) is not kind:
            is_defect = not isinstance(error, CALL_ERRORS)
            log.error("%s", text, exc_info=error if is_defect else None)
        unavailable = EntityUnavailable(text) if _is_about_entity(error) else BusUnavailable(text)
        self._known[entity] = (kind, unavailable)
        return unavailable

    def gone(self, entity: str) -> None:
        if self._known.pop(entity, None) is not None:
            log.warning("%s on Service Bus at %s works again", entity, self.location)

    def kind(self, entity: str) -> Kind | None:
        return self._known[entity][0] if entity in self._known else None

    def unavailable(self, entity: str) -> BusUnavailable | None:
        """What to raise while its problem lasts."""
        if entity not in self._known:
            return None
        error = self._known[entity][1]
        return type(error)(str(error))

    def entities(self) -> list[str]:
        return list(self._known)

    def sentences(self) -> list[str]:
        return [str(error) for _, error in self._known.values()]
