"""What every bus must do.

Subclass `BusSuite` in a test module and supply two fixtures: `bus`, an open one without subscriptions, and `clock`, the
clock it goes by. Override `pass_time`, the times and the flags of `BusParts` where this bus needs others.
"""

from __future__ import annotations

from lucius.testing.bus_delivery import BusDelivery
from lucius.testing.bus_durability import BusDurability
from lucius.testing.bus_publishing import BusPublishing

__all__ = ["BusSuite"]


class BusSuite(BusPublishing, BusDelivery, BusDurability):
    """Everything the bus port promises."""
