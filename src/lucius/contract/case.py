"""Cases: plain functions over a stage, each with what it checks, what it catches, and why that matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lucius.contract.stage import Stage

Body = Callable[["Stage"], None]


class Level(StrEnum):
    MUST = "MUST"
    SHOULD = "SHOULD"


class Status(StrEnum):
    PASS = "PASS"  # noqa: S105 - a status
    FAIL = "FAIL"
    ADVICE = "ADVICE"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Case:
    id: str
    theme: str
    checks: str
    catches: str
    why: str
    remedy: str
    level: Level
    needs_command: bool
    needs_slow_work: bool
    body: Body


@dataclass
class Verdict:
    """The outcome of a case."""

    case: Case
    status: Status
    seconds: float
    reason: str = ""
    expected: str = ""
    happened: str = ""
    exchange: list[str] = field(default_factory=list)
    service_said: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class CaseFailed(Exception):
    """The service did not do what the case expects."""

    def __init__(self, expected: str, happened: str) -> None:
        super().__init__(f"expected {expected}; {happened}")
        self.expected = expected
        self.happened = happened


class CaseNotRun(Exception):
    """The case could not be tested; the message says why and what would help."""


CASES: list[Case] = []
"""Every case, in the order in which they run."""


def case(
    id: str,
    *,
    checks: str,
    catches: str,
    why: str,
    remedy: str,
    level: Level = Level.MUST,
    needs_command: bool = False,
    needs_slow_work: bool = False,
) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        if any(one.id == id for one in CASES):
            raise ValueError(f"duplicate case id {id}")
        theme = body.__module__.rpartition(".")[2]
        CASES.append(
            Case(id, theme, checks, catches, why, remedy, level, needs_command, needs_slow_work, body),
        )
        return body

    return register
