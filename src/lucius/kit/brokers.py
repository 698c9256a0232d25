"""Brokers by their URL, for services and workers. Each needs its extra.

`nats://host:4222` or `tls://host:4222`; `servicebus://NAMESPACE`, or `servicebus://` with the connection string of an
emulator in LUCIUS_SERVICEBUS_CONNECTION. Who the process is to the broker is in the variables of the server's bus.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucius.kit.bus import KitBus
from lucius.kit.errors import ServiceUnusable

if TYPE_CHECKING:
    from lucius.ports.bus import Bus

NATS = ("nats", "tls")
SERVICEBUS = "servicebus"
SUPPORTED = "nats://, tls:// and servicebus://"
OF_THE_SERVER = ("servers", "replicas", "monitor_urls")
"""Options of the bus that a service or worker is not asked for: LUCIUS makes the streams."""


def check_bus_url(url: str, variable: str) -> None:
    """`variable` names the setting in errors. Raises `ServiceUnusable`."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in (*NATS, SERVICEBUS):
        raise ServiceUnusable(f"{variable}: {scheme if separator else 'this'} is not supported; supported: {SUPPORTED}")


@asynccontextmanager
async def open_broker(
    url: str, variable: str, environment: Mapping[str, str] | None = None, *, makes_streams: bool = False
) -> AsyncIterator[KitBus]:
    """`makes_streams`: whether what is missing on NATS is made. Raises `ServiceUnusable`, also if the broker cannot be
    reached within ten seconds."""
    check_bus_url(url, variable)
    environment = os.environ if environment is None else environment
    scheme = url.partition("://")[0]
    extra = SERVICEBUS if scheme == SERVICEBUS else "nats"
    try:
        from lucius.ports.bus import BusUnavailable

        if scheme == SERVICEBUS:
            opening, location = _servicebus(url, variable, environment)
        else:
            opening, location = _nats(url, variable, environment, makes_streams)
    except ModuleNotFoundError as error:
        needed = f"the extra `{extra}`: pip install '.[{extra}]' in a clone of LUCIUS"
        raise ServiceUnusable(f"{variable}={scheme}://… needs {needed}") from error
    try:
        bus = await opening.__aenter__()
    except BusUnavailable as error:
        raise ServiceUnusable(f"{variable}: {error}") from error
    try:
        yield KitBus(bus, location)
    finally:
        await opening.__aexit__(None, None, None)


Opening = tuple[AbstractAsyncContextManager["Bus"], str]
"""A bus that is not open yet, and where it is."""


def _nats(url: str, variable: str, environment: Mapping[str, str], makes_streams: bool) -> Opening:
    from lucius.buses.nats import NatsBus, NatsOptions
    from lucius.buses.nats.options import read_servers
    from lucius.clocks import SystemClock

    names = [name for name in NatsOptions.__struct_fields__ if name not in OF_THE_SERVER]
    given: dict[str, Any] = {name: _told(environment, f"LUCIUS_NATS_{name.upper()}") for name in names}
    try:
        options = NatsOptions(servers=read_servers(url), **{name: text for name, text in given.items() if text})
    except ValueError as error:
        raise ServiceUnusable(f"{variable}: {error}") from error
    for name, path in options.files():
        if not Path(path).is_file():
            raise ServiceUnusable(f"{name}={path}: there is no such file")
    return NatsBus(options, SystemClock(), makes_streams=makes_streams), options.location


def _servicebus(url: str, variable: str, environment: Mapping[str, str]) -> Opening:
    from lucius.buses.servicebus import ServiceBus, ServiceBusOptions
    from lucius.clocks import SystemClock

    namespace = url.partition("://")[2].rstrip("/")
    options = ServiceBusOptions(
        namespace=namespace,
        connection="" if namespace else _told(environment, "LUCIUS_SERVICEBUS_CONNECTION"),
        credential=_told(environment, "LUCIUS_AZURE_CREDENTIAL") or "managed",
        client_id=_told(environment, "LUCIUS_AZURE_CLIENT_ID"),
    )
    if not namespace and not options.connection:
        raise ServiceUnusable(f"{variable}=servicebus:// must name a namespace, or LUCIUS_SERVICEBUS_CONNECTION be set")
    if fault := options.fault():
        raise ServiceUnusable(f"{variable}: {fault}")
    return ServiceBus(options, SystemClock()), options.location


def _told(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name, "").strip()
