"""Submitting a command: from a parsed body to the facts that make a job."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from msgspec import structs

from lucius.domain.envelope import Envelope, EnvelopeRules, Terms, read_envelope
from lucius.domain.inputs import Accepted
from lucius.domain.job import JobSpec
from lucius.domain.protocol import PolicyOverride, resolve_policy
from lucius.domain.routing import Mode
from lucius.domain.step import StepSpec
from lucius.domain.time import Instant, after
from lucius.ports.ledger import Claim, Limit
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant

_NO_POLICY = PolicyOverride()

# Overrides are immutable and few, so nearly every step finds its policy resolved already.
_resolve_policy = lru_cache(maxsize=4096)(resolve_policy)


class Command(Envelope, frozen=True, kw_only=True):
    """An envelope with what the registry says about its tenant: all it takes to create the job."""

    tenant: Tenant | None
    """None for a tenant that the registry does not name."""
    limits: tuple[Limit, ...]
    policy: PolicyOverride
    """The global one; the tenant's and the step's go before it."""
    job_deadline_seconds: float

    @property
    def claim(self) -> Claim:
        return Claim(self.scope_key, self.idempotency_hash)


def prepare(document: object, snapshot: RegistrySnapshot, rules: EnvelopeRules, now: Instant) -> Command:
    """The command in a parsed body, or `CallerError` with every fault found. Creates nothing."""
    envelope = read_envelope(
        document, snapshot.request_types, lambda tenant_id: terms_for(snapshot, tenant_id), rules, now
    )
    settings = snapshot.settings
    tenant = snapshot.tenants.get(envelope.tenant_id)
    return Command(
        **structs.asdict(envelope),
        tenant=tenant,
        limits=limits_for(snapshot, envelope.tenant_id, envelope.routing.resolved_mode),
        policy=settings.policy,
        job_deadline_seconds=_job_deadline_seconds(envelope, tenant, settings),
    )


def terms_for(snapshot: RegistrySnapshot, tenant_id: str | None) -> Terms:
    """What holds for a tenant, in normal form; one that the registry does not name gets the global settings."""
    settings = snapshot.settings
    tenant = None if tenant_id is None else snapshot.tenants.get(tenant_id)
    if tenant is None:
        admitted = settings.unknown_tenants_allowed or tenant_id is None
        return Terms(admitted=admitted, default_mode=settings.mode, refs=settings.refs)
    return Terms(
        mode=tenant.mode,
        default_mode=settings.mode,
        burst_allowed=tenant.burst_allowed,
        refs=tenant.refs or settings.refs,
    )


def limits_for(snapshot: RegistrySnapshot, tenant_id: str, mode: Mode) -> tuple[Limit, ...]:
    """The limits on jobs in flight that a new job of this tenant and mode must find room under."""
    settings = snapshot.settings
    tenant = snapshot.tenants.get(tenant_id)
    own = tenant.max_inflight if tenant is not None else None
    limits = [
        Limit(f"tenant:{tenant_id}", settings.max_inflight_per_tenant if own is None else own, "TENANT_SATURATED")
    ]
    if mode in settings.max_inflight_per_mode:
        limits.append(Limit(f"mode:{mode.value}", settings.max_inflight_per_mode[mode], "MODE_SATURATED"))
    limits.append(Limit("global", settings.max_inflight, "GLOBAL_SATURATED"))
    return tuple(limits)


def to_accepted(command: Command, job_id: str, now: Instant, workspace_root: str) -> Accepted:
    """The fact that a command was taken. Everything a later change of the registry could touch is pinned in it."""
    protocol = command.protocol
    start = now if command.not_before is None else max(now, command.not_before)
    spec = JobSpec(
        job_id=job_id,
        tenant_id=command.tenant_id,
        request_type=command.request_type,
        protocol_id=protocol.id,
        protocol_version=protocol.version,
        schema_version=command.schema_version,
        routing=command.routing,
        input_ref=command.input_ref,
        output_ref=command.output_ref,
        idempotency_key=command.idempotency_key,
        idempotency_hash=command.idempotency_hash,
        doc_id=command.doc_id,
        callback_urls=command.callback_urls,
        correlation_id=command.correlation_id or job_id,
        traceparent=command.traceparent,
        not_before=command.not_before,
        deadline_at=after(start, command.job_deadline_seconds),
        created_at=now,
    )
    tenant_policy = command.tenant.policy if command.tenant is not None else _NO_POLICY
    workspace = f"{workspace_root.rstrip('/')}/{quote(command.tenant_id, safe='')}/{job_id}"
    steps = tuple(
        StepSpec(
            step_id=step.id,
            step_type=step.type,
            service=step.service,
            payload=payload,
            policy=_resolve_policy(step.policy, tenant_policy, command.policy),
            workspace_ref=f"{workspace}/{step.type}",
        )
        for step, payload in zip(protocol.steps, command.payloads, strict=True)
    )
    return Accepted(spec, steps)


def _job_deadline_seconds(envelope: Envelope, tenant: Tenant | None, settings: Globals) -> float:
    """Protocol before tenant before global settings."""
    if envelope.protocol.job_deadline_seconds is not None:
        return envelope.protocol.job_deadline_seconds
    if tenant is not None and tenant.job_deadline_seconds is not None:
        return tenant.job_deadline_seconds
    return settings.job_deadline_seconds
