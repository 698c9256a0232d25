"""The topics and subscriptions that LUCIUS needs on a namespace, as `lucius bus` creates, compares and prints them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from msgspec import Struct

from lucius.ports.bus import Subscription

LOCK_SECONDS_MIN = 5.0
LOCK_SECONDS_MAX = 300.0
DELIVERY_MAX = 2_000
DUPLICATE_SECONDS = 3_600.0
"""A message whose fate is unknown is sent again with the same id; after this long that could make it two."""
RULE = "lucius"
DEFAULT_RULE = "$Default"


class SubscriptionPlan(Struct, frozen=True, kw_only=True):
    name: str
    lock: dt.timedelta
    delivery_max: int
    ttl: dt.timedelta
    where: tuple[tuple[str, str | int], ...]
    """The correlation filter; empty: every message."""


class TopicPlan(Struct, frozen=True, kw_only=True):
    name: str
    duplicates: dt.timedelta
    subscriptions: tuple[SubscriptionPlan, ...]


def plan(subscriptions: Iterable[Subscription], more_topics: Iterable[str] = ()) -> list[TopicPlan]:
    by_topic: dict[str, list[SubscriptionPlan]] = {topic: [] for topic in more_topics}
    for one in subscriptions:
        seconds = min(max(one.lock_seconds, LOCK_SECONDS_MIN), LOCK_SECONDS_MAX)
        by_topic.setdefault(one.topic, []).append(
            SubscriptionPlan(
                name=one.name,
                lock=dt.timedelta(seconds=seconds),
                delivery_max=min(one.delivery_max, DELIVERY_MAX),
                ttl=dt.timedelta(seconds=one.ttl_seconds),
                where=tuple(sorted(one.where.items())),
            )
        )
    return [
        TopicPlan(name=name, duplicates=dt.timedelta(seconds=DUPLICATE_SECONDS), subscriptions=tuple(some))
        for name, some in by_topic.items()
    ]


def iso_duration(value: dt.timedelta) -> str:
    """`P14D`, `PT1M`, `PT10S`."""
    total = round(value.total_seconds() * 1000)
    days, rest = divmod(total, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, millis = divmod(rest, 60_000)
    seconds = f"{millis / 1000:g}"
    time = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    time += f"{seconds}S" if millis else ""
    date = f"{days}D" if days else ""
    return f"P{date}T{time}" if time else f"P{date or 'T0S'}"
