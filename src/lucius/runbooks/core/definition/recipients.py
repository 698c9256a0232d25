"""Recipients of a runbook's notifications, from the text."""

from __future__ import annotations

from typing import Any

from lucius.domain.notifications import INTERVAL_SECONDS, WARN_BEFORE_SECONDS, Cause, Recipient
from lucius.runbooks.core.definition.durations import parse_duration
from lucius.runbooks.core.definition.model import Notifications

_TEXTS = ("name", "kind", "url", "url_env", "secret_env")


def read_notifications(value: dict[str, Any]) -> Notifications:
    return Notifications(
        recipients=tuple(map(read_recipient, value.get("recipients", ()))),
        deadline_seconds=parse_duration(value["deadline"]) if "deadline" in value else None,
        warn_before_seconds=parse_duration(value["warn_before"]) if "warn_before" in value else WARN_BEFORE_SECONDS,
    )


def read_recipient(value: dict[str, Any]) -> Recipient:
    """Raises ValueError or TypeError if its shape is invalid."""
    return Recipient(
        **{name: str(value[name]) for name in _TEXTS if name in value},
        causes=tuple(map(Cause, value.get("causes", ()))),
        to=tuple(map(str, value.get("to", ()))),
        interval_seconds=parse_duration(value["interval"]) if "interval" in value else INTERVAL_SECONDS,
        template=value.get("template"),
    )
