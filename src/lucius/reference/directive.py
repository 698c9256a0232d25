"""The directive, as far as these services read it. Fields they do not know are passed over: a newer server may add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Report = Callable[[float, str], None]
"""Called by the work with its progress from 0 to 1 and a note. Raises `WorkStopped` when the work is to end."""


@dataclass(frozen=True)
class Directive:
    job_id: str
    tenant_id: str
    step_id: str
    step_type: str
    service: str
    attempt_no: int
    lease_id: str
    lease_seconds: float
    callback_token: str
    workspace_ref: str
    input_ref: Any
    output_ref: Any
    payload: Mapping[str, Any]
    previous: Mapping[str, Any]

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Directive:
        """Raises `KeyError`, `TypeError` or `ValueError` for something that is not a directive."""
        return cls(
            job_id=str(message["jobId"]),
            tenant_id=str(message["tenant_id"]),
            step_id=str(message["stepId"]),
            step_type=str(message["step_type"]),
            service=str(message["service"]),
            attempt_no=int(message["attempt_no"]),
            lease_id=str(message["lease_id"]),
            lease_seconds=float(message["lease_seconds"]),
            callback_token=str(message["callback_token"]),
            workspace_ref=str(message["workspace_ref"]),
            input_ref=message["input_ref"],
            output_ref=message["output_ref"],
            payload=dict(message.get("payload") or {}),
            previous=dict(message.get("previous") or {}),
        )

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What makes two deliveries the same attempt."""
        return (self.job_id, self.step_id, self.attempt_no, self.lease_id)

    def identity(self) -> dict[str, Any]:
        """The fields that every callback repeats."""
        return {
            "jobId": self.job_id,
            "stepId": self.step_id,
            "tenant_id": self.tenant_id,
            "attempt_no": self.attempt_no,
            "lease_id": self.lease_id,
        }

    def artifact(self, step_id: str, name: str) -> str | None:
        """A ref that an earlier step left behind, if there is one."""
        artifacts = self.previous.get(step_id)
        value = artifacts.get(name) if isinstance(artifacts, Mapping) else None
        return value if isinstance(value, str) and value else None


@dataclass(frozen=True)
class Outcome:
    """What a service hands back: the artifacts for the ledger, and the file that is its result."""

    artifacts: dict[str, Any]
    result: Path
