"""The context of the handlers: the use cases and the settings of one running application."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from lucius.auth import Authenticator
from lucius.management import Management
from lucius.ports.bus import Bus
from lucius.ports.clock import Clock
from lucius.ports.engine import Engine
from lucius.ports.ledger import Ledger
from lucius.ports.observer import Observer
from lucius.ports.registry import Registry
from lucius.runbooks.opening import Runbooks
from lucius.settings import Settings
from lucius.telemetry.metrics import MetricsObserver
from lucius.telemetry.traces import Traces
from lucius.usecases.accept import Acceptance
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
from lucius.usecases.sightings import Sightings
from lucius.usecases.waits import Waits


class AppContext(Struct, frozen=True, kw_only=True):
    settings: Settings
    acceptance: Acceptance
    completion: Completion
    operations: Operations
    bulk: Bulk
    pulls: Pulls
    sightings: Sightings
    lanes: Lanes
    queries: Queries
    figures: Figures
    lane_history: LaneHistory
    runbooks: Runbooks
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
    metrics: MetricsObserver
    traces: Traces
    waits: Waits
    management: Management
    stopping: asyncio.Event
    """Set when the process is about to stop: calls that wait are answered now."""
