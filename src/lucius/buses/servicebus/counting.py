"""How many messages subscriptions have, as the administration API counts them: one request for each topic.

Peeking would need a connection for each subscription and one for its dead letters. Counting needs the right to manage
the namespace, which serving need not have: then it is left to peeking, and tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from lucius.azure.credential import AzureIdentity
from lucius.buses.servicebus.identity import open_administration
from lucius.buses.servicebus.options import ServiceBusOptions

log = logging.getLogger("lucius.bus")

CALL_SECONDS = 10.0
RETRY_SECONDS = 600.0

Counts = dict[tuple[str, str], tuple[int, int]]
"""By topic and subscription: messages that wait or are locked, and dead letters."""


class Counting:
    def __init__(self, options: ServiceBusOptions, identity: AzureIdentity) -> None:
        self._options = options
        self._identity = identity
        self._client: ServiceBusAdministrationClient | None = None
        self._not_before = 0.0

    async def counts(self, topics: Iterable[str]) -> Counts | None:
        """None if the administration API cannot be used."""
        now = asyncio.get_running_loop().time()
        has_address = bool(self._options.namespace or self._options.administration)
        if not has_address or now < self._not_before:
            return None
        if self._client is None:
            self._client = open_administration(self._options, self._identity)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = await asyncio.gather(*(self._of(self._client, topic) for topic in sorted(set(topics))))
        except (AzureError, OSError, TimeoutError) as error:
            self._not_before = now + RETRY_SECONDS
            log.info("messages on Service Bus are counted by peeking, because the administration API fails: %s", error)
            return None
        return {key: value for some in found for key, value in some.items()}

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    @staticmethod
    async def _of(client: ServiceBusAdministrationClient, topic: str) -> Counts:
        try:
            return {
                (topic, one.name): (one.active_message_count or 0, one.dead_letter_message_count or 0)
                async for one in client.list_subscriptions_runtime_properties(topic)
            }
        except ResourceNotFoundError:
            return {}
