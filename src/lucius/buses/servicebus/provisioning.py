"""Creates and compares topics and subscriptions over the administration API. Only `lucius bus` uses it: serving never
creates anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, RuleProperties, TrueRuleFilter

from lucius.buses.servicebus.browsing import Browsing
from lucius.buses.servicebus.entities import DEFAULT_RULE, RULE, SubscriptionPlan, TopicPlan, iso_duration
from lucius.buses.servicebus.faults import Problems
from lucius.buses.servicebus.identity import identity_of, open_administration, open_client
from lucius.buses.servicebus.options import ServiceBusOptions
from lucius.ports.bus import BusUnavailable

CALL_SECONDS = 30.0
TOPICS_AT_ONCE = 8
MEGABYTE = 1_048_576
FULL_PART = 0.95
"""A topic refuses messages before its last byte: a large one does not fit any more."""


@asynccontextmanager
async def administration(options: ServiceBusOptions) -> AsyncIterator[Provisioner]:
    """Raises `BusUnavailable` with a sentence for whatever the namespace answers."""
    identity = identity_of(options)
    client = open_administration(options, identity)
    try:
        yield Provisioner(client)
    except ClientAuthenticationError as error:
        raise BusUnavailable(
            f"Service Bus at {options.location} refuses the key or the credential; managing topics needs the claim"
            f" Manage, or the role Azure Service Bus Data Owner. ({_short(error)})"
        ) from error
    except (AzureError, OSError, TimeoutError) as error:
        what = "is out of reach" if isinstance(error, ServiceRequestError) else "answers with an error"
        raise BusUnavailable(
            f"the administration API of Service Bus at {options.location} {what}; an emulator's has an address of its"
            f" own, LUCIUS_SERVICEBUS_ADMINISTRATION. ({_short(error)})"
        ) from error
    finally:
        await client.close()
        await identity.close()


class Provisioner:
    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client

    async def provision(self, topics: Sequence[TopicPlan]) -> list[str]:
        """Creates what is missing and changes what differs; a line for each. What the plan does not name stays."""
        return [line for lines in await self._each(topics, self._make) for line in lines]

    async def differences(self, topics: Sequence[TopicPlan]) -> list[str]:
        """A line for everything that is missing or not as planned."""
        return [line for lines in await self._each(topics, self._compare) for line in lines]

    async def _each(
        self, topics: Sequence[TopicPlan], call: Callable[[TopicPlan], Awaitable[list[str]]]
    ) -> list[list[str]]:
        slots = asyncio.Semaphore(TOPICS_AT_ONCE)

        async def one(topic: TopicPlan) -> list[str]:
            async with slots, asyncio.timeout(CALL_SECONDS * (1 + len(topic.subscriptions))):
                return await call(topic)

        return list(await asyncio.gather(*(one(topic) for topic in topics)))

    async def _make(self, topic: TopicPlan) -> list[str]:
        done = await self._make_topic(topic)
        for one in topic.subscriptions:
            done += await self._make_subscription(topic.name, one)
        return done

    async def _compare(self, topic: TopicPlan) -> list[str]:
        properties = await self._topic(topic.name)
        if properties is None:
            return [f"topic {topic.name} is missing"]
        room = await self._client.get_topic_runtime_properties(topic.name)
        faults = [*_topic_faults(topic, properties), *_room_faults(properties, room)]
        found = [f"topic {topic.name}: {text}" for text in faults]
        for one in topic.subscriptions:
            found += await self._subscription_differences(topic.name, one)
        return found

    async def _make_topic(self, topic: TopicPlan) -> list[str]:
        properties = await self._topic(topic.name)
        if properties is None:
            await self._client.create_topic(
                topic.name,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window=topic.duplicates,
            )
            return [f"topic {topic.name} created"]
        if not _topic_faults(topic, properties):
            return []
        if not properties.requires_duplicate_detection:
            return [f"topic {topic.name} has no duplicate detection, which cannot be changed: delete it first"]
        properties.duplicate_detection_history_time_window = topic.duplicates
        properties.status = "Active"
        await self._client.update_topic(properties)
        return [f"topic {topic.name} changed"]

    async def _make_subscription(self, topic: str, one: SubscriptionPlan) -> list[str]:
        path = f"subscription {topic}/{one.name}"
        properties = await self._subscription(topic, one.name)
        done = []
        if properties is None:
            await self._client.create_subscription(
                topic,
                one.name,
                lock_duration=one.lock,
                max_delivery_count=one.delivery_max,
                default_message_time_to_live=one.ttl,
                dead_lettering_on_message_expiration=True,
            )
            done.append(f"{path} created")
        elif _subscription_faults(one, properties):
            properties.lock_duration = one.lock
            properties.max_delivery_count = one.delivery_max
            properties.default_message_time_to_live = one.ttl
            properties.dead_lettering_on_message_expiration = True
            properties.status = "Active"
            await self._client.update_subscription(topic, properties)
            done.append(f"{path} changed")
        rules = await self._rules(topic, one.name)
        if _rule_faults(one, rules):
            name = RULE if one.where else DEFAULT_RULE
            for rule in rules:
                await self._client.delete_rule(topic, one.name, rule.name)
            wanted = CorrelationRuleFilter(properties=dict(one.where)) if one.where else TrueRuleFilter()
            await self._client.create_rule(topic, one.name, name, filter=wanted)
            if not done:
                done.append(f"{path}: filter changed")
        return done

    async def _subscription_differences(self, topic: str, one: SubscriptionPlan) -> list[str]:
        path = f"subscription {topic}/{one.name}"
        properties = await self._subscription(topic, one.name)
        if properties is None:
            return [f"{path} is missing"]
        rules = await self._rules(topic, one.name)
        faults = [*_subscription_faults(one, properties), *_rule_faults(one, rules)]
        return [f"{path}: {text}" for text in faults]

    async def _topic(self, name: str) -> Any:
        try:
            return await self._client.get_topic(name)
        except ResourceNotFoundError:
            return None

    async def _subscription(self, topic: str, name: str) -> Any:
        try:
            return await self._client.get_subscription(topic, name)
        except ResourceNotFoundError:
            return None

    async def _rules(self, topic: str, name: str) -> list[RuleProperties]:
        return [rule async for rule in self._client.list_rules(topic, name)]


def _topic_faults(topic: TopicPlan, found: Any) -> list[str]:
    faults = []
    if not found.requires_duplicate_detection:
        faults.append("duplicate detection is off")
    elif found.duplicate_detection_history_time_window != topic.duplicates:
        has, wanted = iso_duration(found.duplicate_detection_history_time_window), iso_duration(topic.duplicates)
        faults.append(f"duplicates are dropped for {has} instead of {wanted}")
    if found.enable_partitioning:
        faults.append("it is partitioned, so its messages have no order")
    return faults + _status_faults(found)


def _room_faults(found: Any, room: Any) -> list[str]:
    """Nothing that `provision` can change: somebody has to receive messages, or to allow for more."""
    held, maximum = room.size_in_bytes or 0, (found.max_size_in_megabytes or 0) * MEGABYTE
    if not maximum or held < FULL_PART * maximum:
        return []
    return [f"it is full: {held} of {maximum} bytes. Receive or remove messages, or give it a larger size"]


def _subscription_faults(one: SubscriptionPlan, found: Any) -> list[str]:
    compared = (
        ("lock duration", found.lock_duration, one.lock),
        ("time to live", found.default_message_time_to_live, one.ttl),
    )
    faults = [
        f"{name} is {iso_duration(has)} instead of {iso_duration(wanted)}"
        for name, has, wanted in compared
        if has != wanted
    ]
    if found.max_delivery_count != one.delivery_max:
        faults.append(f"max delivery count is {found.max_delivery_count} instead of {one.delivery_max}")
    if not found.dead_lettering_on_message_expiration:
        faults.append("what expires is not dead-lettered")
    if found.requires_session:
        faults.append("it requires sessions, which LUCIUS does not use: delete it first")
    return faults + _status_faults(found)


def _status_faults(found: Any) -> list[str]:
    status = getattr(found.status, "value", found.status)
    return [] if status in (None, "Active") else [f"its status is {status} instead of Active"]


def _rule_faults(one: SubscriptionPlan, rules: Sequence[RuleProperties]) -> list[str]:
    if len(rules) == 1 and _matches(one, rules[0]):
        return []
    wanted = " and ".join(f"{name} = {value}" for name, value in one.where) or "every message"
    names = ", ".join(rule.name for rule in rules) or "none"
    return [f"its rules ({names}) are not the one filter that lets pass {wanted}"]


def _matches(one: SubscriptionPlan, rule: RuleProperties) -> bool:
    found = rule.filter
    if not one.where:
        return isinstance(found, TrueRuleFilter)
    if not isinstance(found, CorrelationRuleFilter):
        return False
    names = ("content_type", "correlation_id", "label", "message_id", "reply_to", "session_id", "to")
    is_more = any(getattr(found, name, None) for name in names)
    return not is_more and dict(found.properties or {}) == dict(one.where)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, HttpResponseError) and error.status_code:
        text = f"{error.status_code}: {text}"
    return text[:300]


async def faults_of_messages(options: ServiceBusOptions, topics: Sequence[TopicPlan]) -> list[str]:
    """Whether messages can be read at all, with the key or credential that serving uses: at most one line."""
    place = next(((topic.name, one.name, False) for topic in topics for one in topic.subscriptions), None)
    if place is None:
        return []
    identity = identity_of(options)
    client = open_client(options, identity)
    browsing = Browsing(client, Problems(options.location))
    try:
        await browsing.page(place, 1, 1)
    except BusUnavailable as error:
        return [str(error)]
    finally:
        await browsing.close()
        await client.close()
        await identity.close()
    return []
