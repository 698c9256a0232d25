"""The context of the handlers: the use cases and the settings of one running application."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from lucius.auth import Authenticator
from lucius.auth.openid import OpenIdConnect
from lucius.domain.errors import CallerError
from lucius.management import Management
from lucius.notifiers.operators import Notifications
from lucius.ports.bus import Bus, DeadLetter, DeliveryRef
from lucius.ports.clock import Clock
from lucius.ports.console_views import ConsoleViews
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry
from lucius.runbooks.core.answers import RunbookDeadMessage
from lucius.runbooks.opening import Runbooks, RunbooksOff
from lucius.settings import Settings
from lucius.telemetry.metrics import MetricsObserver
from lucius.telemetry.traces import Traces
from lucius.usecases.accept import Acceptance
from lucius.usecases.audit import Audit
from lucius.usecases.bulk_operations import Bulk
from lucius.usecases.changes import Changes
from lucius.usecases.complete import Completion
from lucius.usecases.console_sessions import ConsoleSessions
from lucius.usecases.fair_slots import FairSlots
from lucius.usecases.figures import Figures
from lucius.usecases.lane_history import LaneHistory
from lucius.usecases.lanes import Lanes
from lucius.usecases.operate import Operations
from lucius.usecases.pull import Pulls
from lucius.usecases.query import Queries
from lucius.usecases.retention import Retention
from lucius.usecases.sightings import Sightings
from lucius.usecases.waits import Waits


class AppContext(Struct, frozen=True, kw_only=True):
    settings: Settings
    acceptance: Acceptance
    completion: Completion
    operations: Operations
    bulk: Bulk
    audit: Audit
    pulls: Pulls
    sightings: Sightings
    lanes: Lanes
    queries: Queries
    figures: Figures
    lane_history: LaneHistory
    notifications: Notifications
    retention: Retention
    opened_runbooks: Runbooks | RunbooksOff
    engine: Engine
    ledger: Ledger
    bus: Bus
    registry: Registry
    clock: Clock
    authenticator: Authenticator
    observer: Observer
    list_slots: FairSlots
    stream_slots: FairSlots
    """For the reads of event streams: one caller's streams wait for each other."""
    changes: Changes
    console_sessions: ConsoleSessions
    console_views: ConsoleViews
    openid: OpenIdConnect | None
    """How people sign in to the console besides keys and links; None if that is not set up."""
    metrics: MetricsObserver
    traces: Traces
    waits: Waits
    management: Management
    stopping: asyncio.Event
    """Set when the process is about to stop: calls that wait are answered now."""

    @property
    def runbooks(self) -> Runbooks:
        """Raises `CallerError` `RUNBOOKS_OFF`."""
        if isinstance(self.opened_runbooks, RunbooksOff):
            raise CallerError.of("RUNBOOKS_OFF", self.opened_runbooks.why)
        return self.opened_runbooks

    async def describe_dead_letters(self, letters: Sequence[DeadLetter]) -> Mapping[DeliveryRef, RunbookDeadMessage]:
        """What runbooks know of them: nothing if they are off."""
        if isinstance(self.opened_runbooks, RunbooksOff):
            return {}
        return await self.opened_runbooks.dead_letters.describe(letters)
