"""The settings of entities by the names that Config.json and the administration API both use, with their ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lucius.testing.servicebus.durations import duration_of, seconds_of
from lucius.testing.servicebus.settings import (
    DUPLICATE_SECONDS_DEFAULT,
    DUPLICATE_SECONDS_MAX,
    LOCK_SECONDS_MAX,
    MAX_DELIVERY_MAX,
    QueueSettings,
    TopicSettings,
)

FORWARDING = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
UNSUPPORTED_IF_TRUE = ("EnablePartitioning",)
IGNORED = (
    "AutoDeleteOnIdle",
    "DeadLetteringOnFilterEvaluationExceptions",
    "EnableBatchedOperations",
    "EnableExpress",
    "FilteringMessagesBeforePublishing",
    "MaxMessageSizeInKilobytes",
    "Status",
    "SupportOrdering",
    "UserMetadata",
)
"""Accepted without effect, so that files and clients written for Azure need no change."""
MEGABYTE = 1024 * 1024

Fault = Callable[[str, str], None]
"""Reports the name of a property and what is wrong with it."""


class PropertyReader:
    def __init__(self, given: Mapping[str, Any], fault: Fault) -> None:
        self._given = {name: value for name, value in given.items() if value is not None}
        self._fault = fault
        self._known: set[str] = set(IGNORED)

    def queue(self, *, has_duplicate_detection: bool) -> QueueSettings:
        """A queue's settings, or, without duplicate detection of its own, a subscription's."""
        default = QueueSettings()
        settings = QueueSettings(
            lock_seconds=self._seconds("LockDuration", default.lock_seconds, LOCK_SECONDS_MAX),
            max_delivery_count=self._number("MaxDeliveryCount", default.max_delivery_count, 1, MAX_DELIVERY_MAX),
            ttl_seconds=self._seconds("DefaultMessageTimeToLive", default.ttl_seconds),
            dead_letters_expired=self._flag("DeadLetteringOnMessageExpiration"),
            requires_session=self._flag("RequiresSession"),
        )
        if has_duplicate_detection:
            settings.duplicate_seconds = self._duplicates()
            settings.size_bytes_max = self._size()
        self._check_rest()
        return settings

    def topic(self) -> TopicSettings:
        default = TopicSettings()
        settings = TopicSettings(
            ttl_seconds=self._seconds("DefaultMessageTimeToLive", default.ttl_seconds),
            duplicate_seconds=self._duplicates(),
            size_bytes_max=self._size(),
        )
        self._check_rest()
        return settings

    # --- Values ------------------------------------------------------------------------------------------------------

    def _duplicates(self) -> float | None:
        window = self._seconds("DuplicateDetectionHistoryTimeWindow", DUPLICATE_SECONDS_DEFAULT, DUPLICATE_SECONDS_MAX)
        return window if self._flag("RequiresDuplicateDetection") else None

    def _size(self) -> int:
        return self._number("MaxSizeInMegabytes", 1024, 1, 81_920) * MEGABYTE

    def _seconds(self, name: str, default: float, seconds_max: float | None = None) -> float:
        value = self._take(name, None)
        if value is None:
            return default
        try:
            seconds = seconds_of(str(value))
        except ValueError as error:
            self._fault(name, str(error))
            return default
        if seconds <= 0 or (seconds_max is not None and seconds > seconds_max):
            limit = f" and at most {duration_of(seconds_max)}" if seconds_max is not None else ""
            self._fault(name, f"must be longer than nothing{limit}, not {value!r}.")
            return default
        return seconds

    def _number(self, name: str, default: int, low: int, high: int) -> int:
        value = self._take(name, default)
        text = str(value)
        if isinstance(value, bool) or not text.isdigit() or not low <= int(text) <= high:
            self._fault(name, f"must be a whole number from {low} to {high}, not {value!r}.")
            return default
        return int(text)

    def _flag(self, name: str) -> bool:
        value = self._take(name, False)
        if not isinstance(value, bool) and str(value).lower() not in ("true", "false"):
            self._fault(name, f"must be true or false, not {value!r}.")
        return str(value).lower() == "true"

    def _take(self, name: str, default: Any) -> Any:
        self._known.add(name)
        return self._given.get(name, default)

    def _check_rest(self) -> None:
        for name in FORWARDING:
            if self._take(name, ""):
                self._fault(name, "forwarding is not supported by the test server: leave it empty.")
        for name in UNSUPPORTED_IF_TRUE:
            if self._flag(name):
                self._fault(name, "is not supported by the test server: set it to false.")
        for name in self._given:
            if name not in self._known:
                self._fault(name, "is no property that is known here.")
