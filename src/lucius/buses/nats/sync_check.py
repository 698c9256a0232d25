"""Whether the servers write every message to disk before they confirm it, asked of their monitoring addresses.

NATS syncs every two minutes by default, and a machine that fails in between loses messages that it had confirmed. A
client is not told how a server is configured; its monitoring port is, if it has one.
"""

from __future__ import annotations

import logging

import httpx

from lucius.buses.nats.options import NatsOptions
from lucius.ports.bus import BusUnavailable

log = logging.getLogger("lucius.bus")

ANSWER_SECONDS = 5.0


class NotDurable(BusUnavailable):
    """A server confirms messages that are not on its disk yet."""


async def check_sync(options: NatsOptions) -> None:
    """Raises `NotDurable`, and `BusUnavailable` if a monitoring address does not answer."""
    if not options.monitor_urls:
        log.info(
            "whether NATS at %s syncs every write to disk (sync_interval: always) is not checked:"
            " LUCIUS_NATS_MONITOR_URLS names no monitoring address",
            options.location,
        )
        return
    async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
        for url in options.monitor_urls:
            await _check_one(client, url)


async def _check_one(client: httpx.AsyncClient, url: str) -> None:
    address = f"{url.rstrip('/')}/varz"
    try:
        answer = await client.get(address)
        answer.raise_for_status()
        config = answer.json().get("jetstream", {}).get("config")
    except (httpx.HTTPError, ValueError, AttributeError) as error:
        raise BusUnavailable(f"the NATS monitoring address {address} does not answer as it should: {error}") from error
    if not config:
        raise BusUnavailable(f"the NATS server at {url} has JetStream off; start it with jetstream enabled")
    if not config.get("sync_always"):
        raise NotDurable(
            f"the NATS server at {url} confirms messages before they are on its disk: set `sync_interval: always` in"
            " the `jetstream` section of its configuration"
        )
