"""Every subscription that this installation needs on its bus."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.bootstrap.app import open_registry
from lucius.ports.bus import Subscription
from lucius.runbooks.core.messages import SUBSCRIPTIONS, worker_subscription
from lucius.settings import Settings
from lucius.usecases.lane_subscriptions import lane_subscriptions
from lucius.usecases.replies import reply_subscriptions


def bus_subscriptions(settings: Settings, worker_ids: Sequence[str] = ()) -> list[Subscription]:
    """Those of the registry's services on the lanes, of replies if they come over the bus, of runbooks, and of these
    function workers. Raises `RegistryError`."""
    snapshot = open_registry(settings).snapshot()
    workers = [worker_subscription(worker_id) for worker_id in sorted(set(worker_ids))]
    replies = reply_subscriptions() if settings.bus_replies else []
    return [*lane_subscriptions(snapshot), *replies, *SUBSCRIPTIONS, *workers]
