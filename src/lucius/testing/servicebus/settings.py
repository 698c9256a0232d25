"""How queues, topics and subscriptions are set up: the settings that Config.json and the administration API share."""

from __future__ import annotations

from dataclasses import dataclass, field

from lucius.testing.servicebus.filters import Rule

SECONDS_MAX = 10_675_199 * 86_400.0
"""For ever, as Service Bus writes it: P10675199DT2H48M5.4775807S."""
LOCK_SECONDS_DEFAULT = 60.0
LOCK_SECONDS_MAX = 300.0
MAX_DELIVERY_DEFAULT = 10
MAX_DELIVERY_MAX = 2_000
DUPLICATE_SECONDS_DEFAULT = 600.0
DUPLICATE_SECONDS_MAX = 7 * 86_400.0
SIZE_BYTES_DEFAULT = 1024 * 1024 * 1024


@dataclass(slots=True)
class QueueSettings:
    """A queue, or a subscription as far as it is one."""

    lock_seconds: float = LOCK_SECONDS_DEFAULT
    max_delivery_count: int = MAX_DELIVERY_DEFAULT
    ttl_seconds: float = SECONDS_MAX
    dead_letters_expired: bool = False
    requires_session: bool = False
    duplicate_seconds: float | None = None
    """None: no duplicate detection. Subscriptions have none of their own; their topic has."""
    size_bytes_max: int = SIZE_BYTES_DEFAULT


@dataclass(slots=True)
class SubscriptionSettings:
    queue: QueueSettings = field(default_factory=QueueSettings)
    rules: list[Rule] = field(default_factory=lambda: [Rule.default()])


@dataclass(slots=True)
class TopicSettings:
    ttl_seconds: float = SECONDS_MAX
    duplicate_seconds: float | None = None
    size_bytes_max: int = SIZE_BYTES_DEFAULT
    subscriptions: dict[str, SubscriptionSettings] = field(default_factory=dict)


@dataclass(slots=True)
class NamespaceSettings:
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    topics: dict[str, TopicSettings] = field(default_factory=dict)
