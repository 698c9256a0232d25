"""The registry port: protocols, tenants and global settings, as one consistent snapshot at a time."""

from __future__ import annotations

from typing import Protocol as Port

from msgspec import Struct

from lucius.domain.notifications import WARN_BEFORE_SECONDS, Recipient
from lucius.domain.protocol import PolicyOverride, Protocol
from lucius.domain.refs import RefPolicy
from lucius.domain.routing import Mode
from lucius.domain.runbook_tenants import NO_GRANTS, RunbookGrants


class TenantNotifications(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told of the tenant's jobs."""

    recipients: tuple[Recipient, ...] = ()
    warn_before_seconds: float = WARN_BEFORE_SECONDS
    """How long before a job's deadline recipients are told, if the job has not ended."""


class Tenant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one tenant. None means the global setting."""

    id: str
    mode: Mode | None = None
    burst_allowed: bool = True
    max_inflight: int | None = None
    requests_per_second: float | None = None
    refs: RefPolicy | None = None
    policy: PolicyOverride = PolicyOverride()
    job_deadline_seconds: float | None = None
    webhook_secret_env: str | None = None
    """The environment variable with the secret that signs webhooks, or with a reference to it."""
    webhook_secret: str | None = None
    """A reference to that secret in Key Vault."""
    runbooks: RunbookGrants = NO_GRANTS
    notifications: TenantNotifications = TenantNotifications()
    retention_days: float | None = None
    """How many days ended jobs are kept."""


class Globals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults, where neither the request, the protocol nor the tenant says otherwise."""

    mode: Mode = Mode.DEFAULT
    unknown_tenants_allowed: bool = True
    max_inflight: int = 100_000
    max_inflight_per_tenant: int = 1_000
    max_inflight_per_mode: dict[Mode, int] = {}
    requests_per_second: float | None = None
    refs: RefPolicy = RefPolicy()
    policy: PolicyOverride = PolicyOverride()
    job_deadline_seconds: float = 604_800.0


class RegistrySnapshot(Struct, frozen=True):
    """A consistent state of the registry. `version` changes whenever anything in it does."""

    version: str
    protocols: dict[str, Protocol]
    """By protocol id: the newest version of each."""
    request_types: dict[str, Protocol]
    """By request type, aliases included."""
    tenants: dict[str, Tenant]
    """By tenant id in normal form."""
    settings: Globals


class Problem(Struct, frozen=True):
    """Something that keeps what a registry's source holds from taking effect, and where it is."""

    place: str
    """A file, a key, or the source itself."""
    line: int | None
    detail: str
    mark: str = ":"
    """What separates the place from the line."""

    def __str__(self) -> str:
        return f"{self.place}{'' if self.line is None else f'{self.mark}{self.line}'}: {self.detail}"


class Registry(Port):
    def snapshot(self) -> RegistrySnapshot:
        """The last good state. Never blocks, never raises: if the source is broken or away, the previous state stays in
        force."""
        ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why what the source holds is not in force, or that it cannot be read; empty if it is in force."""
        ...

    @property
    def stale_seconds(self) -> float:
        """How long ago the source was last seen to hold what is in force."""
        ...

    async def watch(self, interval_seconds: float) -> None:
        """Take up changes of the source until cancelled. A change takes effect as a whole or not at all."""
        ...
