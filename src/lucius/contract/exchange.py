"""The exchange between the simulated orchestrator and the service: attempts, calls, and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
"""The fields that every callback repeats."""
DECIDED = frozenset({200, 409})
"""Statuses after which the bus need not redeliver the directive."""


@dataclass(frozen=True)
class ScriptedAnswer:
    """A scripted answer. Without a code it is the real server's answer, only delivered differently."""

    status: int = 200
    code: str = ""
    drop: bool = False
    delay_seconds: float = 0.0
    trickle_seconds: float = 0.0
    retry_after_seconds: int | None = None
    cancel_requested: bool = False


Script = Callable[["Call"], ScriptedAnswer | None]
"""Called for each call; `None` leaves the answer to the real server's rules."""


def in_turn(*answers: ScriptedAnswer) -> Script:
    """These answers, one per call; afterwards the real server's rules apply."""
    left = list(answers)
    return lambda call: left.pop(0) if left else None


def always(answer: ScriptedAnswer) -> Script:
    return lambda call: answer


@dataclass(eq=False)
class Attempt:
    """One attempt that the kit delivered, or is about to, with its outcome."""

    directive: dict[str, Any]
    lock_seconds: float
    scripts: dict[str, Script] = field(default_factory=dict)
    handed_at: list[float] = field(default_factory=list)
    settled: bool = False
    acked: bool = False
    result: dict[str, Any] | None = None
    superseded: bool = False
    closed: bool = False

    @property
    def job_id(self) -> str:
        return str(self.directive["jobId"])

    @property
    def token(self) -> str:
        return str(self.directive["callback_token"])

    @property
    def ids(self) -> tuple[Any, ...]:
        return ids_of(self.directive)

    def on(self, kind: str, script: Script) -> None:
        self.scripts[kind] = script


def ids_of(body: dict[str, Any]) -> tuple[Any, ...]:
    """The five ids in normal form: the tenant's letter case and outer spaces are ignored."""
    return tuple(str(body.get(name)).strip().lower() if name == "tenant_id" else body.get(name) for name in IDS)


@dataclass(eq=False)
class Call:
    """One event of the exchange: a pull, a delivered directive, or a callback, with its answer."""

    kind: str
    at: float
    body: dict[str, Any] = field(default_factory=dict)
    attempt: Attempt | None = None
    faults: list[str] = field(default_factory=list)
    """Its faults: in shape, ids or token."""
    is_batched: bool = False
    status: int = 0
    code: str = ""
    answered_at: float | None = None
    was_dropped: bool = False

    @property
    def is_accepted(self) -> bool:
        return self.status == 200

    @property
    def job_id(self) -> str:
        return self.attempt.job_id if self.attempt else str(self.body.get("jobId") or "")


@dataclass
class Reply:
    """What the listener sends, and how."""

    status: int
    content: dict[str, Any]
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    trickle_seconds: float = 0.0
    drop: bool = False
    calls: list[Call] = field(default_factory=list)
    taken: list[Attempt] = field(default_factory=list)


def problem(status: int, code: str, detail: str) -> dict[str, Any]:
    """A body as the real server sends it with `application/problem+json`."""
    return {
        "type": f"urn:lucius:problem:{code.lower().replace('_', '-')}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [{"code": code, "pointer": "", "detail": detail}],
        "correlation_id": "contract-test",
    }
