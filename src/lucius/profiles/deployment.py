"""A deployment on this machine: PostgreSQL, the other servers of a profile, and every role, each a process.

Parts are started one after another, each when the previous one is ready, and stopped in reverse order. If this process
is killed, the kernel signals each of them (see `bound`).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

from lucius.api.management import OFF
from lucius.api.serving import reachable
from lucius.domain.job import TEMPORAL
from lucius.profiles.part import Part, PartPlan
from lucius.profiles.postgres import plan_postgres
from lucius.profiles.server import Server
from lucius.settings import Settings

Sample = Callable[[str, str, Path, Mapping[str, str]], Awaitable[object]]
"""Something to run once everything is up: the address, an API key, the data folder, and the settings."""
SERVICES = ("ocr", "embedding", "sis")
UPGRADE_SECONDS_MAX = 120.0
PROBE_SECONDS_MAX = 5.0
DRAIN_SECONDS = "6.5"
"""How long services may take to finish their work once they are asked to stop."""
ENVIRONMENT_FILE = "profile.env"
MANAGEMENT = re.compile(r"^  management  (\S+)$", re.MULTILINE)
"""The line in which each role prints its management address."""


class Deployment:
    def __init__(
        self,
        settings: Settings,
        servers: Sequence[Server],
        services: bool,
        shows_key: bool,
        database_variable: str = "LUCIUS_LEDGER",
    ) -> None:
        """`servers` besides PostgreSQL. Their settings count more than those of this process. `database_variable`: the
        setting that names PostgreSQL."""
        self._database_variable = database_variable
        self._settings = settings
        self._shows_key = shows_key
        self._services = services
        self._folder = Path(settings.data)
        self._servers = servers
        self._url = f"http://{reachable(settings.host)}:{settings.port}"
        self._parts: list[Part] = []
        self._temporary: list[Path] = []

    async def run(self, sample: Sample | None) -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()

        def on_signal() -> None:
            if stopped.is_set():  # The second signal: stop at once. Every part can be killed safely at any time.
                for part in self._parts:
                    part.kill()
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        running = asyncio.create_task(self._run(sample))
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        waiting.cancel()
        await asyncio.wait({running})
        try:
            for part in self._parts:
                await part.unwatch()
            for part in reversed(self._parts):
                await part.stop()
        finally:
            (self._folder / ENVIRONMENT_FILE).unlink(missing_ok=True)
            for folder in self._temporary:
                with suppress(OSError):  # Not empty: the next start uses it again.
                    folder.rmdir()
        if not running.cancelled():
            running.result()
        say("LUCIUS has stopped.")

    async def _run(self, sample: Sample | None) -> None:
        database = plan_postgres(self._folder / "postgres", servers_environment())
        if database.sockets.parent != self._folder:
            self._temporary.append(database.sockets)
        environment = self._environment(database.url)
        await self._start(database.plan)
        for server in self._servers:
            await self._start(server.plan)
        await self._upgrade(environment)
        self._write_environment(environment)
        for plan in self._roles(environment):
            await self._start(plan)
        say(self._greeting())
        if sample is None and sys.stderr.isatty():
            say("Press Ctrl-C to stop it.")
        watching = [part.watch() for part in self._parts]
        if sample is not None:
            watching.append(asyncio.create_task(self._sample(sample, environment)))
        done, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _start(self, plan: PartPlan) -> None:
        part = Part(plan, self._folder / "logs", say)
        self._parts.append(part)
        say(f"{plan.name} is starting")
        await part.start()

    async def _upgrade(self, environment: dict[str, str]) -> None:
        part = Part(
            PartPlan(name="upgrade", command=lucius_command("db", "upgrade"), environment=environment),
            self._folder / "logs",
            say,
        )
        self._parts.append(part)
        await part.finish(UPGRADE_SECONDS_MAX)
        self._parts.remove(part)

    def _roles(self, environment: dict[str, str]) -> Iterator[PartPlan]:
        async def answers(log_text: str) -> bool:
            if "LUCIUS API at" not in log_text:
                return False
            try:
                async with httpx.AsyncClient(timeout=PROBE_SECONDS_MAX, trust_env=False) as client:
                    return (await client.get(f"{self._url}/readyz")).status_code == 200
            except httpx.HTTPError:
                return False

        async def has_begun(log_text: str) -> bool:
            return " is running" in log_text

        async def serves(log_text: str) -> bool:
            return all(f"{name} serves " in log_text for name in SERVICES)

        # Only one process can serve a port: the worker serves the metrics of Temporal's SDK, the API management.
        is_off = self._settings.management_port == OFF
        other_port = {"LUCIUS_MANAGEMENT_PORT": OFF if is_off else "0"}
        no_sdk_metrics = {"LUCIUS_TEMPORAL_METRICS_ADDRESS": ""}
        if self._settings.engine == TEMPORAL:
            variables = environment | other_port
            yield PartPlan(name="worker", command=lucius_command("worker"), environment=variables, is_ready=has_begun)
        yield PartPlan(
            name="api", command=lucius_command("api"), environment=environment | no_sdk_metrics, is_ready=answers
        )
        variables = environment | no_sdk_metrics | other_port
        for role in ("reconciler", "runbooks", "scheduler"):
            yield PartPlan(name=role, command=lucius_command(role), environment=variables, is_ready=has_begun)
        if self._services:
            command = lucius_command("platform", *SERVICES)
            yield PartPlan(name="services", command=command, environment=environment, is_ready=serves)

    def _environment(self, database_url: str) -> dict[str, str]:
        """This process's environment, with the settings that make the parts one deployment."""
        settings = self._settings
        return {
            "LUCIUS_PLATFORM_STATE": str(self._folder / "services"),
            "LUCIUS_PLATFORM_DRAIN_SECONDS": DRAIN_SECONDS,
            **os.environ,
            self._database_variable: database_url,
            "LUCIUS_BUS": settings.bus,
            "LUCIUS_ENGINE": settings.engine,
            "LUCIUS_DATA": settings.data,
            "LUCIUS_HOST": settings.host,
            "LUCIUS_PORT": str(settings.port),
            "LUCIUS_URL": self._url,
            "LUCIUS_ORCHESTRATOR_URL": settings.orchestrator_url or self._url,
            "LUCIUS_API_KEY": settings.api_key,
            "LUCIUS_CALLBACK_KEYS": ",".join(settings.callback_keys),
            "LUCIUS_FILE_REFS_ALLOWED": "true",
            **{name: value for server in self._servers for name, value in server.settings.items()},
        }

    def _write_environment(self, environment: dict[str, str]) -> None:
        """For a shell: with these settings, commands such as `lucius temporal check` find this deployment."""
        path = self._folder / ENVIRONMENT_FILE
        path.unlink(missing_ok=True)
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment.items() if name.startswith("LUCIUS_")]
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.writelines(lines)

    async def _sample(self, sample: Sample, environment: Mapping[str, str]) -> None:
        await sample(self._url, self._settings.api_key, self._folder, environment)
        say(f"\nLUCIUS stays up at {self._url}. Press Ctrl-C to stop it.")
        await asyncio.Event().wait()

    def _greeting(self) -> str:
        management = [
            f"{part.plan.name} {found[1]}" for part in self._parts if (found := MANAGEMENT.search(part.log_text()))
        ]
        lines = [
            f"LUCIUS is up at {self._settings.orchestrator_url or self._url}",
            f"  API key      {(self._shows_key and self._settings.api_key) or 'as configured'}",
            *(f"  {server.label:<11}  {server.address}" for server in self._servers if server.label),
            *(f"  {'' if place else 'management':<11}  {one}" for place, one in enumerate(management)),
            f"  data         {self._folder}",
            f"  logs         {self._folder / 'logs'}, a file for each part",
            f"  settings     set -a; . {shlex.quote(str(self._folder / ENVIRONMENT_FILE))}; set +a",
        ]
        return "\n".join(lines)


def servers_environment() -> dict[str, str]:
    """For servers that are not LUCIUS."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}


def lucius_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lucius.cli.main", *arguments]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
