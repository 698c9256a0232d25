"""Conditions shared by the statements of several tables."""

from __future__ import annotations

IS_OPEN = "status IN ('pending', 'dispatched', 'polling')"
"""Steps that have not ended. The partial indexes use exactly this text and match no other."""
UNDER_WAY = "(e.ready = TRUE OR e.in_flight = TRUE OR e.status IN ('dispatched', 'polling'))"
"""Executions `e` that have begun and not ended."""
NOT_SUCCEEDED = "status IN ('failed', 'poll_timeout', 'rolled_back', 'cancelled')"
