"""What the handlers work with: the use cases and the settings of one running application."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from lucius.auth import Authenticator
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
from lucius.usecases.complete import Completion
from lucius.usecases.operate import Operations
from lucius.usecases.query import Queries


class Desk(Struct, frozen=True, kw_only=True):
    settings: Settings
    acceptance: Acceptance
    completion: Completion
    operations: Operations
    queries: Queries
    runbooks: Runbooks
    engine: Engine
    ledger: Ledger
    bus: Bus
    registry: Registry
    clock: Clock
    authenticator: Authenticator
    observer: Observer
    metrics: MetricsObserver
    traces: Traces
    stopping: asyncio.Event
    """Set when the process is about to stop: whoever waits for something answers now."""
