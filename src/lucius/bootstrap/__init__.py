"""The composition root: from settings to a running application. The only place that knows every adapter.

`open_app` serves every role and every test; the others open a part of it.
"""

from lucius.bootstrap.app import open_app
from lucius.bootstrap.bus_plan import bus_subscriptions
from lucius.bootstrap.engines import temporal_settings
from lucius.bootstrap.runbooks import open_runbooks_alone
from lucius.bootstrap.stores import open_clock, open_database, servicebus_options
from lucius.bootstrap.workers import open_bus, open_bus_worker

__all__ = [
    "bus_subscriptions",
    "open_app",
    "open_bus",
    "open_bus_worker",
    "open_clock",
    "open_database",
    "open_runbooks_alone",
    "servicebus_options",
    "temporal_settings",
]
