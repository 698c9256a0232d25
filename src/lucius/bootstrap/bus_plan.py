"""What this installation needs on its bus, and how Service Bus differs from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lucius.bootstrap.registry import open_registry
from lucius.bootstrap.stores import open_identity, servicebus_options
from lucius.ports.bus import BusUnavailable, Subscription
from lucius.runbooks.core.messages import SUBSCRIPTIONS, TOPICS, worker_subscription
from lucius.settings import Settings, SettingsError
from lucius.usecases.lane_subscriptions import lane_subscriptions
from lucius.usecases.replies import reply_subscriptions

if TYPE_CHECKING:
    from lucius.buses.servicebus.entities import TopicPlan


async def bus_subscriptions(settings: Settings, worker_ids: Sequence[str] = ()) -> list[Subscription]:
    """Those of the registry's services on the lanes, of replies if they come over the bus, of runbooks, and of these
    function workers. Raises `RegistryError`."""
    async with open_identity(settings) as identity, open_registry(settings, identity) as registry:
        snapshot = registry.snapshot()
    workers = [worker_subscription(worker_id) for worker_id in sorted(set(worker_ids))]
    replies = reply_subscriptions() if settings.bus_replies else []
    return [*lane_subscriptions(snapshot), *replies, *SUBSCRIPTIONS, *workers]


async def bus_topics(settings: Settings, worker_ids: Sequence[str] = ()) -> list[TopicPlan]:
    """The topics of Service Bus, with their subscriptions and filters."""
    try:
        from lucius.buses.servicebus.entities import plan
    except ModuleNotFoundError as error:
        raise SettingsError("this needs the extra `servicebus`: pip install '.[servicebus]'") from error
    return plan(await bus_subscriptions(settings, worker_ids), TOPICS)


async def bus_differences(settings: Settings, worker_ids: Sequence[str] = ()) -> list[str]:
    """A line for each difference, and for whatever else keeps this installation from using Service Bus."""
    options = servicebus_options(settings)
    from lucius.buses.servicebus.provisioning import administration, faults_of_messages

    topics = await bus_topics(settings, worker_ids)
    try:
        async with administration(options) as provisioner:
            found = await provisioner.differences(topics)
    except BusUnavailable as error:
        found = [str(error)]
    return [*found, *await faults_of_messages(options, topics)]
