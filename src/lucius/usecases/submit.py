"""Submitting a command: from a parsed body to the fact that creates a job."""

from __future__ import annotations

from functools import lru_cache

from msgspec import structs

from lucius.domain.envelope import Envelope, EnvelopeRules, Terms, read_envelope
from lucius.domain.inputs import Accepted
from lucius.domain.job import RULES_VERSION, JobSpec
from lucius.domain.protocol import PolicyOverride, resolve_policy
from lucius.domain.routing import Mode
from lucius.domain.step import StepSpec
from lucius.domain.time import Instant, after
from lucius.ports.ledger import Claim, Limit
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant
from lucius.ports.tenant_files import TenantFiles

_NO_POLICY = PolicyOverride()

# Overrides are immutable and few, so nearly every lookup is a cache hit.
_resolve_policy = lru_cache(maxsize=4096)(resolve_policy)


class Command(Envelope, frozen=True, kw_only=True):
    """An envelope with its tenant's registry entry: all that is needed to create the job."""

    tenant: Tenant | None
    """None for a tenant that the registry does not name."""
    limits: tuple[Limit, ...]
    policy: PolicyOverride
    """The global policy; the tenant's and the step's take precedence."""
    job_deadline_seconds: float

    @property
    def claim(self) -> Claim:
        return Claim(self.scope_key, self.idempotency_hash)


def prepare(
    document: object,
    tenant_id: str | None,
    snapshot: RegistrySnapshot,
    rules: EnvelopeRules,
    files: TenantFiles,
    now: Instant,
) -> Command:
    """The command in a parsed body; raises `CallerError` with every fault. Creates nothing. `tenant_id` comes from
    `tenant_of`."""
    terms = terms_for(snapshot, files, tenant_id)
    envelope = read_envelope(document, tenant_id, snapshot.request_types, terms, rules, now)
    settings = snapshot.settings
    tenant = snapshot.tenants.get(envelope.tenant_id)
    return Command(
        **structs.asdict(envelope),
        tenant=tenant,
        limits=limits_for(snapshot, envelope.tenant_id, envelope.routing.resolved_mode),
        policy=settings.policy,
        job_deadline_seconds=_job_deadline_seconds(envelope, tenant, settings),
    )


def terms_for(snapshot: RegistrySnapshot, files: TenantFiles, tenant_id: str | None) -> Terms:
    """The terms of a tenant, given in normal form; an unregistered tenant gets the global settings."""
    settings = snapshot.settings
    if tenant_id is None:
        return Terms(default_mode=settings.mode, refs=settings.refs)
    folders = files.folders(tenant_id)
    tenant = snapshot.tenants.get(tenant_id)
    if tenant is None:
        admitted = settings.unknown_tenants_allowed
        return Terms(admitted=admitted, default_mode=settings.mode, refs=settings.refs, files=folders)
    return Terms(
        mode=tenant.mode,
        default_mode=settings.mode,
        burst_allowed=tenant.burst_allowed,
        refs=tenant.refs or settings.refs,
        files=folders,
    )


def limits_for(snapshot: RegistrySnapshot, tenant_id: str, mode: Mode) -> tuple[Limit, ...]:
    """The limits on jobs in flight that apply to a new job of this tenant and mode."""
    settings = snapshot.settings
    tenant = snapshot.tenants.get(tenant_id)
    tenant_max = tenant.max_inflight if tenant is not None else None
    limits = [
        Limit(
            f"tenant:{tenant_id}",
            settings.max_inflight_per_tenant if tenant_max is None else tenant_max,
            "TENANT_SATURATED",
        )
    ]
    if mode in settings.max_inflight_per_mode:
        limits.append(Limit(f"mode:{mode.value}", settings.max_inflight_per_mode[mode], "MODE_SATURATED"))
    limits.append(Limit("global", settings.max_inflight, "GLOBAL_SATURATED"))
    return tuple(limits)


def to_accepted(command: Command, job_id: str, now: Instant, workspace: str) -> Accepted:
    """The fact that a command was accepted. It pins everything that a later change of the registry could affect.

    `workspace` is the URI of the tenant's folder in the workspace.
    """
    protocol = command.protocol
    start = now if command.not_before is None else max(now, command.not_before)
    spec = JobSpec(
        **command.command_fields(),
        job_id=job_id,
        protocol_id=protocol.id,
        protocol_version=protocol.version,
        correlation_id=command.correlation_id or job_id,
        deadline_at=after(start, command.job_deadline_seconds),
        created_at=now,
        rules_version=RULES_VERSION,
    )
    tenant_policy = command.tenant.policy if command.tenant is not None else _NO_POLICY
    steps = tuple(
        StepSpec(
            step_id=step.id,
            step_type=step.type,
            service=step.service,
            payload=payload,
            policy=_resolve_policy(step.policy, tenant_policy, command.policy),
            workspace_ref=f"{workspace}/{job_id}/{step.type}",
        )
        for step, payload in zip(protocol.steps, command.payloads, strict=True)
    )
    return Accepted(spec, steps)


def _job_deadline_seconds(envelope: Envelope, tenant: Tenant | None, settings: Globals) -> float:
    """The protocol's, or else the tenant's, or else the global setting."""
    if envelope.protocol.job_deadline_seconds is not None:
        return envelope.protocol.job_deadline_seconds
    if tenant is not None and tenant.job_deadline_seconds is not None:
        return tenant.job_deadline_seconds
    return settings.job_deadline_seconds
