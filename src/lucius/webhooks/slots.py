"""Concurrent calls: limits per tenant and per host, with tenants in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, zip_longest
from urllib.parse import urlsplit

from lucius.ports.ledger import Webhook


class CallSlots:
    def __init__(self, calls_max: int, per_tenant_max: int, per_host_max: int) -> None:
        self.free = calls_max
        self._per_tenant_max = per_tenant_max
        self._per_host_max = per_host_max
        self._by_tenant: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()

    def take(self, due: Sequence[Webhook]) -> list[Webhook]:
        """The calls that can be made now, tenants in turn; takes their slots."""
        return [webhook for webhook in _in_turn(due) if self._take(webhook)]

    def _take(self, webhook: Webhook) -> bool:
        tenant, host = webhook.tenant_id, host_of(webhook.url)
        if (
            self.free == 0
            or self._by_tenant[tenant] >= self._per_tenant_max
            or self._by_host[host] >= self._per_host_max
        ):
            return False
        self.free -= 1
        self._by_tenant[tenant] += 1
        self._by_host[host] += 1
        return True

    def give_back(self, webhook: Webhook) -> None:
        self.free += 1
        for counts, name in ((self._by_tenant, webhook.tenant_id), (self._by_host, host_of(webhook.url))):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]


def _in_turn(due: Sequence[Webhook]) -> list[Webhook]:
    """The first of each tenant, then the second of each, and so on."""
    by_tenant: dict[str, list[Webhook]] = {}
    for webhook in due:
        by_tenant.setdefault(webhook.tenant_id, []).append(webhook)
    return [webhook for webhook in chain.from_iterable(zip_longest(*by_tenant.values())) if webhook is not None]


def host_of(url: str) -> str:
    """Host and port; an address without a host counts as its own host."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower() or url
    except ValueError:
        return url
