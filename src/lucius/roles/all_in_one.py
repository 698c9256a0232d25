"""Every role in one process: `lucius up`, and its profiles."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lucius.api.management import listen_for_management, managed
from lucius.api.serving import STOP_SECONDS, listen, reachable, served
from lucius.app_context import AppContext
from lucius.bootstrap import open_app
from lucius.console import console_routes
from lucius.domain.job import TEMPORAL
from lucius.local_secrets import with_secrets
from lucius.roles.running import first_of, run, say_stopped
from lucius.runbooks.opening import RunbooksOff
from lucius.settings import Settings, SettingsError
from lucius.telemetry.logs import configure_logs
from lucius.telemetry.redaction import Redactor

Sample = Callable[[str, str, Path], Awaitable[object]]
"""Something to run once the server is up: its address, an API key, and the data folder."""


def run_up(
    settings: Settings, services: bool = True, sample: Sample | None = None, hint: Callable[[str], str] = str
) -> None:
    """Every role in one process. `hint`: writes commands that a text quotes as they have to be typed."""
    run(_up(settings, services, sample, hint), settings)


def run_profile(profile: str, settings: Settings, ports: dict[str, int], **options: Any) -> None:
    """Every role as a separate process, with the servers that they need."""
    from lucius.profiles.profile import Ports, run_profile

    run_profile(profile, settings, ports=Ports(**ports), **options)


async def _up(settings: Settings, services: bool, sample: Sample | None, hint: Callable[[str], str]) -> None:
    has_own_key = not settings.api_key
    settings = with_secrets(settings)
    configure_logs(settings)  # Again: the secrets just generated must not be logged either.
    if services and not settings.api_key:
        raise SettingsError(
            "the reference services log in with LUCIUS_API_KEY: set it, or leave them out (--no-services)"
        )
    listener, port = listen(settings), listen_for_management(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    data = Path(settings.data).absolute()  # noqa: ASYNC240 - before anything is served
    async with (
        open_app(settings) as context,
        managed(context.management, port) as address,
        served(context, listener, console_routes(context)) as server,
    ):
        greeting = _greeting(context, services, address, has_own_key)
        print(f"{greeting}\n{hint(await console_line(context))}", file=sys.stderr, flush=True)
        if sample is None and sys.stderr.isatty():
            print("Press Ctrl-C to stop it.", file=sys.stderr, flush=True)
        stop = asyncio.Event()
        helpers: list[asyncio.Task[object]] = []
        if services:
            from lucius.reference.serving import run_services

            url = f"http://{reachable(settings.host)}:{settings.port}"
            store = "memory" if settings.ledger == "memory" else "sqlite"
            roots = ",".join(settings.platform_file_roots)
            key, state, reach = context.settings.api_key, data / "services", _reach(settings)
            serving = run_services(url, key, state, stop, store=store, file_roots=roots, reach=reach)
            helpers.append(asyncio.create_task(serving))
            if sample is not None:
                helpers.append(asyncio.create_task(_sample(sample, context, url, data, hint)))
        # Services end by themselves only if they cannot start, which must be reported.
        await first_of(server.until_stopped(), *helpers[:1])
        stop.set()
        context.stopping.set()
        for helper in helpers[1:]:
            helper.cancel()  # Without the services the sample would never end.
        if helpers:
            await asyncio.wait(helpers, timeout=STOP_SECONDS)
        for helper in helpers:
            helper.cancel()
        for task in helpers[:1]:
            _raise_failure(task, settings)
    say_stopped(_farewell(settings, data))


def _reach(settings: Settings) -> dict[str, Any]:
    """What the services beside the server read and write beyond this machine."""
    same = ("storage_account", "storage_sas", "storage_connection", "azure_credential", "azure_client_id")
    return {
        **{name: getattr(settings, name) for name in same},
        "blob_roots": ",".join(settings.platform_blob_roots),
        "https_hosts": ",".join(settings.platform_https_hosts),
        "private_addresses_allowed": settings.platform_private_addresses_allowed,
    }


def _farewell(settings: Settings, data: Path) -> str:
    if settings.ledger == "memory":
        return "LUCIUS has stopped. Its jobs were in memory and are gone."
    if settings.ledger == "sqlite":
        return f"LUCIUS has stopped. Its jobs are kept in {data} and continue with the next start."
    return "LUCIUS has stopped. Its jobs are kept in its ledger and continue with the next start."


def _raise_failure(services: asyncio.Task[object], settings: Settings) -> None:
    from lucius.platform import ServiceUnusable

    error = services.exception() if services.done() and not services.cancelled() else None
    if isinstance(error, ServiceUnusable):
        advice = f"their state is in {settings.data}/services; choose another folder with --data, or use --no-services"
        raise SettingsError(f"the reference services cannot start: {error} ({advice})") from error
    if error is not None:
        raise error


async def _sample(sample: Sample, context: AppContext, url: str, data: Path, hint: Callable[[str], str]) -> None:
    await sample(url, context.settings.api_key, data)
    line = hint(await console_line(context))
    print(f"\nLUCIUS stays up at {url}. Press Ctrl-C to stop it.\n{line}", file=sys.stderr, flush=True)


async def console_line(context: AppContext) -> str:
    """Where the console is: as a link that signs in, if there is a key to sign in as."""
    settings = context.settings
    if not settings.has_console:
        return "  console     off"
    if not settings.api_key:
        return f"  console     {settings.console_address}/"
    link = await context.console_sessions.new_link(sha256(settings.api_key.encode()).hexdigest())
    how = "signs in once, within a minute; 'lucius console link' makes another"
    return f"  console     {settings.console_address}/sign-in/{link.token}\n              ({how})"


def _greeting(context: AppContext, services: bool, management: str, has_own_key: bool) -> str:
    """Shows only a generated API key: a configured one must not appear in the log."""
    settings, runbooks = context.settings, context.opened_runbooks
    lines = [
        f"LUCIUS is up at {settings.public_url}",
        f"  API key     {(has_own_key and settings.api_key) or 'as configured'}",
        f"  ledger      {Redactor().redact(settings.ledger)} in {Path(settings.data).resolve()}",
        *([f"  runbooks    {runbooks.why}"] if isinstance(runbooks, RunbooksOff) else []),
        *([f"  Temporal    {settings.temporal_address}"] if settings.engine == TEMPORAL else []),
        f"  services    {'ocr, embedding, sis' if services else 'none here: bring your own'}",
        f"  management  {management}",
    ]
    return "\n".join(lines)
