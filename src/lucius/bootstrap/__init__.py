"""The composition root: from settings to a running application. The only place that knows every adapter.

`open_app` serves every role and every test; the others open a part of it.
"""

from lucius.bootstrap.app import open_app
from lucius.bootstrap.archive import open_archive
from lucius.bootstrap.bus_plan import bus_differences, bus_subscriptions, bus_topics
from lucius.bootstrap.engines import temporal_settings
from lucius.bootstrap.rate_gate import open_rate_gate
from lucius.bootstrap.registry import open_registry, storage_options
from lucius.bootstrap.runbooks import open_runbooks_alone
from lucius.bootstrap.runbooks_database import open_runbooks_database
from lucius.bootstrap.stores import open_clock, open_database, open_identity, servicebus_options
from lucius.bootstrap.workers import open_bus, open_bus_worker

__all__ = [
    "bus_differences",
    "bus_subscriptions",
    "bus_topics",
    "open_app",
    "open_archive",
    "open_bus",
    "open_bus_worker",
    "open_clock",
    "open_database",
    "open_identity",
    "open_rate_gate",
    "open_registry",
    "open_runbooks_alone",
    "open_runbooks_database",
    "servicebus_options",
    "storage_options",
    "temporal_settings",
]
