"""Intervals, batch sizes and timeouts of the loops."""

from __future__ import annotations

from msgspec import Struct

from lucius.runbooks.sources.limits import SourceLimits


class OrchestratorSettings(Struct, frozen=True, kw_only=True):
    events_max: int = 64
    results_max: int = 256
    lock_seconds: float = 60.0
    wait_seconds: float = 1.0
    sweep_interval: float = 0.5
    retry_seconds: float = 2.0
    """Delay before a message that could not be handled is redelivered."""
    stop_seconds: float = 10.0
    lost_after_seconds: float = 120.0
    """Age at which an unhandled message counts as lost and its event is rebuilt from the tables. Must exceed the delay
    of a busy bus."""
    repair_interval: float = 15.0


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    interval: float = 1.0
    source_interval: float = 60.0
    lease_seconds: float = 30.0
    source_share_min: float = 0.5
    """A source with less than this share of its previous members changes nothing until an operator confirms it."""
    absence_seconds: float = 300.0
    """How long a member must be missing before it is removed, unless the runbook sets it."""
    limits: SourceLimits = SourceLimits()
