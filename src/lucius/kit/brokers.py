"""Brokers by their URL, for services and workers. Each needs its extra."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lucius.kit.bus import KitBus
from lucius.kit.errors import ServiceUnusable

SCHEMES = ("nats", "tls")
OF_THE_SERVER = ("servers", "replicas", "monitor_urls")
"""Options of the bus that a service or worker is not asked for: LUCIUS makes the streams."""


def check_bus_url(url: str, variable: str) -> None:
    """`variable` names the setting in errors. Raises `ServiceUnusable`."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        supported = " and ".join(f"{one}://" for one in SCHEMES)
        raise ServiceUnusable(f"{variable}: {scheme if separator else 'this'} is not supported; supported: {supported}")


@asynccontextmanager
async def open_broker(
    url: str, variable: str, environment: Mapping[str, str] | None = None, *, makes_streams: bool = False
) -> AsyncIterator[KitBus]:
    """`makes_streams`: whether what is missing on the broker is made. Raises `ServiceUnusable`, also if the broker
    cannot be reached within ten seconds."""
    check_bus_url(url, variable)
    try:
        from lucius.buses.nats import NatsBus, NatsOptions
        from lucius.buses.nats.options import read_servers
        from lucius.clocks import SystemClock
        from lucius.ports.bus import BusUnavailable
    except ModuleNotFoundError as error:
        needed = "the extra `nats`: pip install '.[nats]' in a clone of LUCIUS"
        raise ServiceUnusable(f"{variable}={url.partition('://')[0]}://… needs {needed}") from error
    environment = os.environ if environment is None else environment
    names = [name for name in NatsOptions.__struct_fields__ if name not in OF_THE_SERVER]
    given: dict[str, Any] = {name: environment.get(f"LUCIUS_NATS_{name.upper()}", "").strip() for name in names}
    try:
        options = NatsOptions(servers=read_servers(url), **{name: text for name, text in given.items() if text})
    except ValueError as error:
        raise ServiceUnusable(f"{variable}: {error}") from error
    for name, path in options.files():
        if not Path(path).is_file():  # noqa: ASYNC240 - before anything is served
            raise ServiceUnusable(f"{name}={path}: there is no such file")
    try:
        bus = await NatsBus(options, SystemClock(), makes_streams=makes_streams).__aenter__()
    except BusUnavailable as error:
        raise ServiceUnusable(f"{variable}: {error}") from error
    try:
        yield KitBus(bus, options.location)
    finally:
        await bus.__aexit__(None, None, None)
