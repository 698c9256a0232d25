"""What a test has to say."""

from __future__ import annotations

from typing import Any

from lucius.domain.notifications import Cause, Facts, Notice, Recipient

NOW = 1_700_000_000_000


def held(recipient: Recipient | None = None, at: int = NOW, **facts: Any) -> Notice:
    one = recipient or Recipient(name="ops", kind="webhook", url="https://ops.example/hook")
    given: dict[str, Any] = {"runbook": "move", "batch_id": 7, "reason": "too many failed"} | facts
    return Notice(Facts(cause=given.pop("cause", Cause.BATCH_HELD), at=at, **given), one)
