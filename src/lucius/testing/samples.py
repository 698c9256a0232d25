"""Sample commands, a clock that tests move, and one that can be set."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import Raw

from lucius.clocks import SystemClock
from lucius.domain.callbacks import CallbackKey
from lucius.domain.canonical import idempotency_scope_key
from lucius.domain.inputs import Accepted
from lucius.domain.job import RULES_VERSION, JobSpec
from lucius.domain.protocol import Policy
from lucius.domain.routing import DecisionSource, Mode, route
from lucius.domain.step import Step, StepSpec
from lucius.domain.time import Instant, after
from lucius.ports.clock import Clock
from lucius.ports.engine import NewJob
from lucius.ports.ledger import Claim, Limit
from lucius.runbooks.core.job_tokens import JobTokens

START: Instant = 1_780_000_000_000
CLAIM_SECONDS = 30.0
STEP_IDS = ("ocr", "embedding", "sis")
JOB_TOKENS = JobTokens((CallbackKey("k1", b"a secret of the tests alone"),))


class ManualClock:
    """A clock that does not move by itself, with unique ids that are the same in every run. Also an `IdSource`."""

    def __init__(self, now: Instant = START, claim_seconds: float = CLAIM_SECONDS, jitter: float = 0.5) -> None:
        self.claim_seconds = claim_seconds
        self.publishes_inside = False
        self.is_holding_back = False
        self._now = now
        self._jitter = jitter
        self._jobs = 0
        self._leases = 0

    skew_seconds = 0.0

    def now(self) -> Instant:
        return self._now

    def set(self, now: Instant) -> None:
        self._now = now

    def advance(self, seconds: float) -> Instant:
        """Move forward, or back if `seconds` is negative."""
        self._now = after(self._now, seconds)
        return self._now

    def job_id(self) -> str:
        """Has the form of a UUIDv7; ids of the same time sort in the order of creation."""
        self._jobs += 1
        count, millis = self._jobs, f"{self._now:012x}"
        high, low = (count >> 12) & 0xFFF, count & 0xFFF
        return f"{millis[:8]}-{millis[8:]}-7{high:03x}-8{low:03x}-{count:012x}"

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return self.is_holding_back

    def lease_id(self) -> str:
        self._leases += 1
        return f"lease-{self._leases:08d}"

    def jitter(self) -> float:
        return self._jitter


class ShiftedClock(SystemClock):
    """The machine's clock, set ahead or back by a test."""

    shift_seconds = 0.0

    def now(self) -> Instant:
        return after(super().now(), self.shift_seconds)


def step_spec(step_id: str, policy: Policy | None = None, *, payload: bytes = b'{"pages":"1-2"}') -> StepSpec:
    return StepSpec(
        step_id=step_id,
        step_type=step_id.upper(),
        service=step_id,
        payload=Raw(payload),
        policy=policy or Policy(),
        workspace_ref=f"blob://work/acme/{step_id}",
    )


def job_spec(
    clock: Clock,
    *,
    tenant_id: str = "acme",
    request_type: str = "OCR_EMBEDDING_SIS",
    mode: Mode = Mode.DEFAULT,
    doc_id: str | None = None,
    key: str | None = None,
    deadline_seconds: float = 3_600.0,
    not_before: Instant | None = None,
    **fields: Any,
) -> JobSpec:
    """The spec of an accepted job; `fields` replace anything else."""
    now, job_id = clock.now(), clock.job_id()
    values: dict[str, Any] = {
        "job_id": job_id,
        "tenant_id": tenant_id,
        "request_type": request_type,
        "protocol_id": request_type,
        "protocol_version": 1,
        "schema_version": "1.0",
        "routing": route(tenant_id, doc_id, mode, DecisionSource.REQUEST, f"the request asks for {mode.value}"),
        "input_ref": Raw(b'"blob://in/contract.pdf"'),
        "output_ref": Raw(b'{"uri":"blob://out/answer.json"}'),
        "idempotency_key": key,
        "idempotency_hash": sha256((key or job_id).encode()).hexdigest(),
        "doc_id": doc_id,
        "correlation_id": f"correlation of {job_id}",
        "not_before": not_before,
        "deadline_at": after(max(now, not_before or now), deadline_seconds),
        "created_at": now,
        "rules_version": RULES_VERSION,
    }
    return JobSpec(**(values | fields))


def accepted(
    clock: Clock,
    *,
    steps: Sequence[str] = STEP_IDS,
    policy: Policy | None = None,
    done: tuple[Step, ...] = (),
    **wishes: Any,
) -> Accepted:
    """A command that passed validation; `wishes` are those of `job_spec`."""
    return Accepted(job_spec(clock, **wishes), tuple(step_spec(step_id, policy) for step_id in steps), done)


def claim_of(spec: JobSpec) -> Claim:
    key = idempotency_scope_key(spec.tenant_id, spec.idempotency_key, spec.idempotency_hash)
    return Claim(key, spec.idempotency_hash)


def tenant_limit(maximum: int, tenant_id: str = "acme") -> Limit:
    return Limit(f"tenant:{tenant_id}", maximum, "TENANT_SATURATED")


def global_limit(maximum: int) -> Limit:
    return Limit("global", maximum, "GLOBAL_SATURATED")


def mode_limit(maximum: int, mode: Mode = Mode.DEFAULT) -> Limit:
    return Limit(f"mode:{mode.value}", maximum, "MODE_SATURATED")


def new_job(clock: Clock, *, limits: tuple[Limit, ...] = (), **wishes: Any) -> NewJob:
    """A command ready for an engine; `wishes` are those of `accepted`."""
    fact = accepted(clock, **wishes)
    return NewJob(fact=fact, claim=claim_of(fact.spec), limits=limits)
