"""Every role in one process: `lucius up`, and its profiles."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lucius.api.serving import STOP_SECONDS, listen, reachable, served
from lucius.bootstrap import open_app
from lucius.domain.job import TEMPORAL
from lucius.roles.running import first_of, run
from lucius.secrets_kept import with_secrets
from lucius.settings import Settings, SettingsError
from lucius.telemetry.logs import configure_logs

Sample = Callable[[str, str, Path], Awaitable[object]]
"""Something to run once the server is up: its address, an API key, and a folder to work in."""


def run_up(settings: Settings, services: bool = True, sample: Sample | None = None) -> None:
    """Every role in one process."""
    run(_up(settings, services, sample), settings)


def run_profile(settings: Settings, **options: Any) -> None:
    """Every role as a process of its own, with the servers that they need."""
    from lucius.profiles.temporal import run_profile

    run_profile(settings, **options)


async def _up(settings: Settings, services: bool, sample: Sample | None) -> None:
    settings = with_secrets(settings)
    configure_logs(settings)  # Again: what was made up just now must not be logged either.
    if services and not settings.api_key:
        raise SettingsError(
            "the reference services log in with LUCIUS_API_KEY: set it, or leave them out (--no-services)"
        )
    listener = listen(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    folder = Path(settings.data).resolve() / "sample"  # noqa: ASYNC240 - before anything is served
    async with open_app(settings) as desk, served(desk, listener) as server:
        print(_greeting(desk.settings, services), file=sys.stderr, flush=True)
        stop = asyncio.Event()
        helpers: list[asyncio.Task[object]] = []
        if services:
            from lucius.reference.serving import run_services

            url = f"http://{reachable(settings.host)}:{settings.port}"
            state = folder.parent / "services"
            store = "memory" if settings.ledger == "memory" else "sqlite"
            helpers.append(asyncio.create_task(run_services(url, desk.settings.api_key, state, stop, store=store)))
            if sample is not None:
                helpers.append(asyncio.create_task(_sample(sample, desk.settings, url, folder)))
        # Services end before they are asked to only if they cannot start, and that must not go unseen.
        await first_of(server.until_stopped(), *helpers[:1])
        stop.set()
        desk.stopping.set()
        for helper in helpers[1:]:
            helper.cancel()  # Without the services the sample would never end.
        if helpers:
            await asyncio.wait(helpers, timeout=STOP_SECONDS)
        for helper in helpers:
            helper.cancel()
        for task in helpers[:1]:
            _raise_failure(task, settings)


def _raise_failure(services: asyncio.Task[object], settings: Settings) -> None:
    from lucius.platform import ServiceUnusable

    error = services.exception() if services.done() and not services.cancelled() else None
    if isinstance(error, ServiceUnusable):
        advice = f"their state is in {settings.data}/services; --data chooses another folder, --no-services none"
        raise SettingsError(f"the reference services cannot start: {error} ({advice})") from error
    if error is not None:
        raise error


async def _sample(sample: Sample, settings: Settings, url: str, folder: Path) -> None:
    await sample(url, settings.api_key, folder)
    print(
        f"\nLUCIUS stays up at {url}. Press Ctrl-C to stop it.\n"
        "In another terminal, `lucius runbook sample` runs a mailbox migration on it.",
        file=sys.stderr,
        flush=True,
    )


def _greeting(settings: Settings, services: bool) -> str:
    lines = [
        f"LUCIUS is up at {settings.public_url}",
        f"  API key   {settings.api_key or 'as configured'}",
        f"  ledger    {settings.ledger} in {Path(settings.data).resolve()}",
        *([f"  Temporal  {settings.temporal_address}"] if settings.engine == TEMPORAL else []),
        f"  services  {'ocr, embedding, sis' if services else 'none here: bring your own'}",
    ]
    return "\n".join(lines)
