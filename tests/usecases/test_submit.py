"""Submitting: what the registry says about a tenant, and what is pinned on the job."""

from __future__ import annotations

from typing import Any

import pytest

from lucius.domain.envelope import EnvelopeRules, tenant_of
from lucius.domain.errors import CallerError
from lucius.domain.protocol import Policy, PolicyOverride, Protocol, StepDefinition
from lucius.domain.refs import RefPolicy
from lucius.domain.routing import Mode
from lucius.domain.time import iso
from lucius.local_tenant_files import LocalTenantFiles
from lucius.ports.ledger import Limit
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant
from lucius.settings import Settings
from lucius.usecases.submit import Command, limits_for, prepare, terms_for, to_accepted

NOW = 1_790_000_000_000
FILES = LocalTenantFiles(Settings(data="/data"))
STEP = StepDefinition(
    id="ocr",
    type="OCR",
    service="ocr-service",
    payload_pointer="",
    payload_schema={},
    policy=PolicyOverride(max_attempts=7),
)
PROTOCOL = Protocol(id="OCR", version=3, request_types=("OCR",), steps=(STEP,))
DEADLINE = Protocol(id="D", version=1, request_types=("D",), steps=(STEP,), job_deadline_seconds=60.0)


def snapshot(*tenants: Tenant, **settings: Any) -> RegistrySnapshot:
    protocols = {"OCR": PROTOCOL, "D": DEADLINE}
    return RegistrySnapshot("v", protocols, protocols, {tenant.id: tenant for tenant in tenants}, Globals(**settings))


def command(state: RegistrySnapshot, **change: Any) -> Command:
    document = {
        "tenant_id": "Acme",
        "request_type": "OCR",
        "input_ref": "https://a.example/in",
        "output_ref": "https://a.example/out",
        "payload": {"x": 1},
        "schema_version": "1",
        **change,
    }
    return prepare(document, tenant_of(document), state, EnvelopeRules(), FILES, NOW)


def refusal(state: RegistrySnapshot, **change: Any) -> str:
    with pytest.raises(CallerError) as caught:
        command(state, **change)
    return caught.value.code


def test_unknown_tenant_gets_the_global_settings() -> None:
    prepared = command(snapshot(Tenant(id="other", max_inflight=1)))
    assert prepared.tenant is None
    assert prepared.tenant_id == "acme"
    assert prepared.limits == (
        Limit("tenant:acme", 1_000, "TENANT_SATURATED"),
        Limit("global", 100_000, "GLOBAL_SATURATED"),
    )


def test_unknown_tenant_is_refused_when_the_door_is_closed() -> None:
    closed = snapshot(Tenant(id="known"), unknown_tenants_allowed=False)
    assert refusal(closed) == "TENANT_FORBIDDEN"
    assert command(closed, tenant_id="KNOWN").tenant == Tenant(id="known")
    assert refusal(closed, tenant_id="") == "ENVELOPE_INVALID"


def test_tenants_own_settings_go_before_the_global_ones() -> None:
    tenant = Tenant(id="acme", mode=Mode.BURST, max_inflight=5, refs=RefPolicy(hosts=("a.example",)))
    state = snapshot(tenant, max_inflight_per_tenant=9, max_inflight=50, max_inflight_per_mode={Mode.BURST: 7})
    prepared = command(state, doc_id="d")
    assert prepared.tenant is tenant
    assert prepared.routing.resolved_mode is Mode.BURST
    assert prepared.limits == (
        Limit("tenant:acme", 5, "TENANT_SATURATED"),
        Limit("mode:BURST", 7, "MODE_SATURATED"),
        Limit("global", 50, "GLOBAL_SATURATED"),
    )
    assert refusal(state, doc_id="d", input_ref="https://b.example/x") == "REF_FORBIDDEN"
    assert limits_for(state, "acme", Mode.DEFAULT)[1].scope == "global"


def test_limit_of_zero_is_a_limit() -> None:
    assert limits_for(snapshot(Tenant(id="acme", max_inflight=0)), "acme", Mode.DEFAULT)[0].maximum == 0


def test_burst_is_refused_to_a_tenant_that_may_not_use_it() -> None:
    state = snapshot(Tenant(id="acme", burst_allowed=False), mode=Mode.BURST)
    assert refusal(state, doc_id="d") == "MODE_FORBIDDEN"
    assert command(state, mode="SAFE")


def test_terms_for_nobody_are_the_global_ones() -> None:
    assert terms_for(snapshot(unknown_tenants_allowed=False), FILES, None).admitted


def test_claim_is_the_commands() -> None:
    prepared = command(snapshot(), idempotency_key="k")
    assert (prepared.claim.key, prepared.claim.hash) == (prepared.scope_key, prepared.idempotency_hash)
    assert prepared.claim.key == command(snapshot(), idempotency_key="k", payload={}).claim.key
    assert prepared.claim.hash != command(snapshot(), idempotency_key="k", payload={}).claim.hash


def test_accepted_pins_everything() -> None:
    state = snapshot(
        Tenant(id="acme", policy=PolicyOverride(lease_seconds=50.0, max_attempts=9)),
        policy=PolicyOverride(lease_seconds=10.0, ack_timeout_seconds=3.0),
    )
    prepared = command(state, doc_id="D", idempotency_key="k", callback_urls={"completed": "https://h.example/x"})
    accepted = to_accepted(prepared, "job-1", NOW, "file:///work/acme")
    spec, (step,) = accepted.spec, accepted.steps
    assert (spec.job_id, spec.tenant_id, spec.protocol_id, spec.protocol_version) == ("job-1", "acme", "OCR", 3)
    assert spec.routing is prepared.routing
    assert spec.correlation_id == "job-1"
    assert spec.created_at == NOW
    assert spec.deadline_at == NOW + 604_800_000
    assert spec.callback_urls == {"completed": "https://h.example/x"}
    assert (spec.idempotency_key, spec.idempotency_hash) == ("k", prepared.idempotency_hash)
    assert step.policy == Policy(max_attempts=7, lease_seconds=50.0, ack_timeout_seconds=3.0)
    assert step.workspace_ref == "file:///work/acme/job-1/OCR"
    assert (step.step_id, step.service, bytes(step.payload)) == ("ocr", "ocr-service", b'{"x":1}')
    assert accepted.done == ()


def test_accepted_keeps_the_correlation_id_it_was_given() -> None:
    accepted = to_accepted(command(snapshot(), correlation_id="c"), "job-1", NOW, "file:///work/acme")
    assert accepted.spec.correlation_id == "c"


def test_deadline_counts_from_the_later_of_acceptance_and_start() -> None:
    later = command(snapshot(job_deadline_seconds=10.0), not_before=iso(NOW + 5_000))
    earlier = command(snapshot(job_deadline_seconds=10.0), not_before=iso(NOW - 5_000))
    assert to_accepted(later, "j", NOW, "w").spec.deadline_at == NOW + 15_000
    assert to_accepted(earlier, "j", NOW, "w").spec.deadline_at == NOW + 10_000


def test_deadline_is_the_protocols_before_the_tenants_before_the_global_one() -> None:
    state = snapshot(Tenant(id="acme", job_deadline_seconds=20.0), job_deadline_seconds=30.0)
    assert command(state, request_type="D").job_deadline_seconds == 60.0
    assert command(state).job_deadline_seconds == 20.0
    assert command(state, tenant_id="other").job_deadline_seconds == 30.0
