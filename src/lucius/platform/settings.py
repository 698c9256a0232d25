"""A service's settings, from the environment. The defaults work with `lucius up` on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lucius.azure.credential import CREDENTIALS
from lucius.client.addresses import is_loopback
from lucius.client.keys import DATA_DEFAULT, DATA_VARIABLE, key_on_this_machine
from lucius.kit import settings as kit
from lucius.kit.settings import number, variable

__all__ = ["PlatformSettings", "is_loopback", "key_now", "name_of", "read_settings"]


def _secret(name: str) -> Any:
    return field(default="", repr=False, metadata={"name": name})


@dataclass(frozen=True, kw_only=True)
class PlatformSettings:
    orchestrator_url: str = kit.url_field()
    """Where directives come from and callbacks go."""
    api_key: str = kit.key_field()
    """A key with the role `work`. Default for a server on this machine: the key in its data folder."""
    bus: str = variable("", "LUCIUS_PLATFORM_BUS")
    """Where directives come from instead: the bus itself, such as `nats://host:4222`. Empty means over HTTP."""
    callbacks: str = variable("http", "LUCIUS_PLATFORM_CALLBACKS", choices=("http", "bus"))
    """How ACKs and RESULTs are sent. `bus` needs directives from the bus, and a server with `LUCIUS_BUS_REPLIES`."""
    lock_seconds: float = number(10.0, 1, 300, "LUCIUS_PLATFORM_LOCK_SECONDS")
    """How long a directive from the bus is locked: another replica gets it if it is not acknowledged by then."""
    concurrency: int = number(kit.CONCURRENCY_DEFAULT, 1, 1_000, "LUCIUS_PLATFORM_CONCURRENCY")
    """How many attempts run at once. No more directives are taken than that."""
    state: str = variable(".lucius-platform", "LUCIUS_PLATFORM_STATE")
    """A folder for state that survives a restart, with a subfolder per service. Each replica needs its own."""
    store: str = variable("sqlite", "LUCIUS_PLATFORM_STORE", choices=("sqlite", "workspace", "memory"))
    """Where attempts are recorded: `sqlite` or `workspace` survive a restart, `memory` does not."""
    health_port: int = number(0, 0, 65_535, "LUCIUS_PLATFORM_HEALTH_PORT")
    """Port of `/healthz`, `/readyz` and `/metrics`; 0 disables them."""
    health_host: str = variable("127.0.0.1", "LUCIUS_PLATFORM_HEALTH_HOST")
    """The address that the health port listens on."""
    batch_max: int = number(50, 1, 500, "LUCIUS_PLATFORM_BATCH_MAX")
    """How many callbacks may be sent in one call."""
    drain_seconds: float = number(25.0, 0, 86_400, "LUCIUS_PLATFORM_DRAIN_SECONDS")
    """How long running work may continue after SIGTERM before it is given back."""
    work_seconds_max: float = number(21_600.0, 1, 604_800, "LUCIUS_PLATFORM_WORK_SECONDS_MAX")
    """How long one attempt may take before it is reported as failed."""
    error_frames: bool = variable(True, "LUCIUS_PLATFORM_ERROR_FRAMES")
    """Whether failures tell where they were raised: file, line and function of the last frames."""
    version: str = variable("", "LUCIUS_PLATFORM_VERSION")
    """The service's version, shown by `lucius workers`. Empty means that of the kit."""
    file_roots: str = variable("", "LUCIUS_PLATFORM_FILE_ROOTS")
    """More folders that `file://` refs may point to, comma-separated: see `file_roots`."""
    blob_roots: str = variable("", "LUCIUS_PLATFORM_BLOB_ROOTS")
    """Containers and prefixes that blob refs may name, comma-separated: see `blob_roots`."""
    storage_account: str = variable("", "LUCIUS_STORAGE_ACCOUNT")
    """The storage account of blob refs and blob workspaces."""
    storage_sas: str = _secret("LUCIUS_STORAGE_SAS")
    """A shared access signature of that account. Empty means the identity that `azure_credential` names."""
    storage_connection: str = _secret("LUCIUS_STORAGE_CONNECTION")
    """A connection string instead of both, for emulators and tests."""
    azure_credential: str = variable("managed", "LUCIUS_AZURE_CREDENTIAL", choices=CREDENTIALS)
    """Who this process is to Azure."""
    azure_client_id: str = variable("", "LUCIUS_AZURE_CLIENT_ID")
    """Which one, if the machine has several identities."""
    https_hosts: str = variable("", "LUCIUS_PLATFORM_HTTPS_HOSTS")
    """The only hosts that `https://` inputs are read from, comma-separated. Empty means every public host."""
    https_seconds_max: float = number(300.0, 1, 86_400, "LUCIUS_PLATFORM_HTTPS_SECONDS_MAX")
    """How long reading one `https://` input may take."""
    private_addresses_allowed: bool = variable(False, "LUCIUS_PLATFORM_PRIVATE_ADDRESSES_ALLOWED")
    """Whether `https://` inputs are read from private networks too."""
    data: str = variable(DATA_DEFAULT, DATA_VARIABLE)
    """The data folder: tenants' files are in `files` there, and the key of a server on this machine."""
    otlp_endpoint: str = variable("", "LUCIUS_OTLP_ENDPOINT")
    """Where spans are sent (OTLP over HTTP); needs the extra `otel`. Empty disables them."""
    rehearsing: bool = variable(False, "LUCIUS_CONTRACT_TEST")
    """Set by the contract kit: directives may prolong their work."""

    def __post_init__(self) -> None:
        kit.check(self, self.orchestrator_url, self.api_key)


def name_of(setting: str) -> str:
    """The environment variable of a setting."""
    return kit.variable_of(PlatformSettings, setting)


def read_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> PlatformSettings:
    """Settings from the environment. Raises `ServiceUnusable` for an invalid one."""
    settings = kit.read(PlatformSettings, environment, overrides)
    if settings.api_key:
        return settings
    return replace(settings, api_key=key_on_this_machine(settings.orchestrator_url, settings.data))


def key_now(settings: PlatformSettings, environment: Mapping[str, str] | None = None) -> str:
    """The key to use after the one in the settings was refused: `lucius up` may have created one since the start."""
    return kit.key_now(settings.orchestrator_url, settings.data, settings.api_key, environment)
