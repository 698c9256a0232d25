"""Runs the reference services: several in one event loop, each with its own state folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lucius.kit.process import say_stopped, stop_on_signals
from lucius.platform import PlatformService, PlatformSettings, ServiceUnusable
from lucius.platform.remote_files import open_remote_files
from lucius.reference import embedding, ocr, sis
from lucius.reference.models import embedding_endpoint
from lucius.reference.sis import sis_endpoint

SERVICES: dict[str, PlatformService] = {one.service.name: one.service for one in (ocr, embedding, sis)}

CONCURRENCY = 4
DRAIN_SECONDS = 6.5
"""Together with the kit's time for giving work back, slightly less than the server waits for them."""


async def run_services(
    url: str,
    api_key: str,
    state: Path,
    stop: asyncio.Event,
    names: Sequence[str] = tuple(SERVICES),
    concurrency: int = CONCURRENCY,
    store: str = "sqlite",
    file_roots: str = "",
    reach: Mapping[str, Any] | None = None,
) -> None:
    """Serve the named services until `stop` is set, then finish running work. `reach` are more of their settings: the
    storage account, and what refs may name. Raises `ServiceUnusable`."""
    settings = PlatformSettings(
        orchestrator_url=url,
        api_key=api_key,
        state=str(state),
        data=str(state.parent),
        store=store,
        concurrency=concurrency,
        drain_seconds=DRAIN_SECONDS,
        file_roots=file_roots,
        **(reach or {}),
    )
    await serve_together(names, settings, stop)


async def serve_together(names: Sequence[str], settings: PlatformSettings, stop: asyncio.Event) -> None:
    """The named services in this event loop, all with the same settings. Raises `ServiceUnusable`."""
    services = [service_named(name) for name in dict.fromkeys(names)]
    if settings.health_port and len(services) > 1:
        raise ServiceUnusable(
            "LUCIUS_PLATFORM_HEALTH_PORT is for one service; remove it, or run each service as a separate process"
        )
    if {"embedding", "sis"} & {service.name for service in services}:
        embedding_endpoint()
        sis_endpoint()
    try:
        # One for all of them: a process has one identity on Azure.
        with open_remote_files(settings) as remote:
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.serve(stop, settings, remote=remote))
    except BaseExceptionGroup as failed:
        unusable, others = failed.split(ServiceUnusable)
        if unusable is None or others is not None:
            raise
        raise ServiceUnusable("; ".join(str(one) for one in unusable.exceptions)) from failed


async def serve_until_signal(names: Sequence[str], settings: PlatformSettings) -> None:
    """As a separate process: until SIGTERM or SIGINT, then finish running work."""
    await serve_together(names, settings, stop_on_signals())
    say_stopped(", ".join(names))


def service_named(name: str) -> PlatformService:
    if name not in SERVICES:
        raise ServiceUnusable(f"{name!r} is not a reference service; there are {', '.join(SERVICES)}")
    return SERVICES[name]
