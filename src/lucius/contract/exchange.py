"""What passes between the played orchestrator and the service: attempts, calls, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
"""What every callback repeats."""
DECIDED = frozenset({200, 409})
"""Statuses after which the bus need not deliver the directive again."""


@dataclass(frozen=True)
class Answer:
    """A scripted answer. Without a code it is the one that the real server would give, only given differently."""

    status: int = 200
    code: str = ""
    drop: bool = False
    delay_seconds: float = 0.0
    trickle_seconds: float = 0.0
    retry_after_seconds: int | None = None
    cancel_requested: bool = False


Script = Callable[["Call"], Answer | None]
"""Asked for each call; `None` leaves it to the real server's rules."""


def in_turn(*answers: Answer) -> Script:
    """These answers, one for each call; after the last the real server's rules hold."""
    left = list(answers)
    return lambda call: left.pop(0) if left else None


def always(answer: Answer) -> Script:
    return lambda call: answer


@dataclass(eq=False)
class Attempt:
    """One attempt that the kit handed out, or is about to, with what came of it."""

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
    """The five ids in normal form: the tenant's letter case and outer spaces do not matter."""
    return tuple(str(body.get(name)).strip().lower() if name == "tenant_id" else body.get(name) for name in IDS)


@dataclass(eq=False)
class Call:
    """One thing that happened on the line: a pull, a directive handed out, or a callback, with its answer."""

    kind: str
    at: float
    body: dict[str, Any] = field(default_factory=dict)
    attempt: Attempt | None = None
    faults: list[str] = field(default_factory=list)
    """What is wrong with it: its shape, its ids, its token."""
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
    """What the listener is to send, and how."""

    status: int
    content: dict[str, Any]
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    trickle_seconds: float = 0.0
    drop: bool = False
    calls: list[Call] = field(default_factory=list)
    taken: list[Attempt] = field(default_factory=list)


def problem(status: int, code: str, detail: str) -> dict[str, Any]:
    """A body as the real server gives it with `application/problem+json`."""
    return {
        "type": f"urn:lucius:problem:{code.lower().replace('_', '-')}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [{"code": code, "pointer": "", "detail": detail}],
        "correlation_id": "contract-test",
    }
