"""Jobs that the real brain drives, for observers to watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw, structs

from lucius.domain.decide import decide
from lucius.domain.inputs import Accepted, Input
from lucius.domain.job import RULES_VERSION, Job, JobSpec
from lucius.domain.protocol import Policy
from lucius.domain.routing import DecisionSource, Mode, route
from lucius.domain.step import StepSpec
from lucius.ports.ledger import Change

JOB_ID = "018f6b1e-7c00-7000-8000-0123456789ab"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class _Fresh:
    claim_seconds = 30.0
    publishes_inside = False

    def __init__(self) -> None:
        self._leases = 0

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        return False

    def lease_id(self) -> str:
        self._leases += 1
        return f"lease-{self._leases}"

    def jitter(self) -> float:
        return 0.0


class Drive:
    """A job on its way: tell it facts at given moments, and take the changes."""

    def __init__(self, **fields: Any) -> None:
        self._fresh = _Fresh()
        self.changes: list[Change] = []
        spec: dict[str, Any] = {
            "job_id": JOB_ID,
            "tenant_id": "acme",
            "request_type": "OCR",
            "protocol_id": "OCR",
            "protocol_version": 1,
            "schema_version": "1",
            "routing": route("acme", None, Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG, "test"),
            "input_ref": Raw(b'"https://x.example/in"'),
            "output_ref": Raw(b'"https://x.example/out"'),
            "idempotency_key": None,
            "idempotency_hash": "h",
            "correlation_id": "corr-1",
            "traceparent": TRACEPARENT,
            "deadline_at": 10_000_000,
            "created_at": 1_000,
            "rules_version": RULES_VERSION,
            **fields,
        }
        step = StepSpec(
            step_id="ocr",
            step_type="OCR",
            service="ocr",
            payload=Raw(b"{}"),
            policy=Policy(),
            workspace_ref="file:///w",
        )
        self._accepted = Accepted(JobSpec(**spec), (step,))
        self.job: Job | None = None

    def accept(self, at: int = 1_000) -> Drive:
        return self.tell(self._accepted, at)

    def tell(self, fact: Input, at: int) -> Drive:
        before = self.job
        decision = decide(before, fact, at, self._fresh)
        self.job = structs.replace(decision.job, revision=decision.job.revision + 1)
        self.changes.append(Change(before=before, after=decision.job, events=decision.events))
        return self


@pytest.fixture
def drive() -> Callable[..., Drive]:
    return Drive
