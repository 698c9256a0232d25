"""Conformance suite for buses.

Subclass `BusSuite` in a test module and provide two fixtures: `bus`, an open bus without subscriptions, and `clock`,
its clock. Override `pass_time`, the times and the flags of `BusParts` as this bus needs. If the bus is durable, also
subclass `lucius.testing.bus_durability.BusDeliveryCounts`, or `BusDurability` if a first delivery may be forgotten; if
tenants take turns on it, `lucius.testing.bus_fairness.BusTurns`; if one topic may be full while others are not,
`lucius.testing.bus_topics.BusTopicsApart`.
"""

from __future__ import annotations

from lucius.testing.bus_dead_letters import BusDeadLetters
from lucius.testing.bus_delivery import BusDelivery
from lucius.testing.bus_fairness import BusFairness
from lucius.testing.bus_publishing import BusPublishing

__all__ = ["BusSuite"]


class BusSuite(BusPublishing, BusDelivery, BusDeadLetters, BusFairness):
    """Everything that the bus port guarantees of every bus."""
