"""A worker's settings, from the environment or as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lucius.client.keys import DATA_DEFAULT, DATA_VARIABLE, key_on_this_machine
from lucius.kit import settings as kit
from lucius.kit.settings import number, variable

BUS_VARIABLE = "LUCIUS_WORKER_BUS"
HEALTH_PORT_VARIABLE = "LUCIUS_WORKER_HEALTH_PORT"


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Fields without a variable are for tests and for embedding the worker."""

    url: str = kit.url_field()
    api_key: str = kit.key_field()
    """Default for a server on this machine: the key in its data folder."""
    bus: str = variable("", BUS_VARIABLE)
    """Where jobs come from and results go instead: the bus itself, such as `nats://host:4222`. Empty means HTTP."""
    data: str = variable(DATA_DEFAULT, DATA_VARIABLE)
    concurrency: int = number(kit.CONCURRENCY_DEFAULT, 1, 1_000, "LUCIUS_WORKER_CONCURRENCY")
    """How many functions run at once. For workers with only quick functions, `pull_max` is the limit instead."""
    drain_seconds: float = number(20.0, 0, 86_400, "LUCIUS_WORKER_DRAIN_SECONDS")
    """How long functions may continue after SIGTERM before their jobs are left to another worker."""
    pull_max: int = number(256, 1, 256, "LUCIUS_WORKER_PULL_MAX")
    """How many jobs are pulled in one call."""
    version: str = variable("", "LUCIUS_WORKER_VERSION")
    """The worker's version, shown by `lucius workers`. Empty means that of the kit."""
    health_port: int = number(0, 0, 65_535, HEALTH_PORT_VARIABLE)
    """Port of `/healthz`, `/readyz` and `/metrics`; 0 disables them."""
    health_host: str = variable("127.0.0.1", "LUCIUS_WORKER_HEALTH_HOST")
    """The address that the health port listens on."""
    wait_seconds: float = number(20.0, 0, 60)
    """How long the server may hold a pull open while there is nothing to do."""
    renew_seconds: float = number(20.0, 0.01, 30)
    """How often the locks of jobs are renewed; a lock lasts 60 s."""
    throttle_tries: int = number(3, 1, 20)
    throttle_base_seconds: float = number(1.0, 0, 20)
    results_max: int = number(500, 1, 500)
    """How many results are sent in one call."""
    unsent_max: int = number(2_000, 1, 100_000)
    """While this many results are unsent, no more jobs are pulled."""

    def __post_init__(self) -> None:
        kit.check(self, self.url, self.api_key)


def read_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> WorkerSettings:
    """Settings from the environment; arguments override it. Raises `ServiceUnusable` for an invalid one."""
    settings = kit.read(WorkerSettings, environment, overrides)
    if settings.api_key:
        return settings
    return replace(settings, api_key=key_on_this_machine(settings.url, settings.data))


def key_now(settings: WorkerSettings) -> str:
    """The key to use after the one in the settings was refused."""
    return kit.key_now(settings.url, settings.data, settings.api_key)
