"""The plan of a load run, checked before anything is sent."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field
from typing import Literal, get_args

JOBS_DEFAULT = 1_000
JOBS_MAX = 1_000_000
"""Every job's times are kept until the end, so that percentiles are exact; this many need about 100 MB."""
IN_FLIGHT_DEFAULT = 50
IN_FLIGHT_MAX = 1_000
"""A job in flight holds a connection open, and a server has 2,000 by default."""
SECONDS_MAX = 86_400.0
RATE_MAX = 10_000.0
TENANTS_MAX = 10_000
DRAIN_SECONDS_DEFAULT = 60.0
SEED_MAX = 2**63 - 1
WORK_MS_MAX = 600_000
REQUEST_TYPE_DEFAULT = "OCR_EMBEDDING_SIS"

Verdict = Literal["succeeded", "failed_retryable", "failed_final", "rate_limited", "lost"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_WORK_MS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class PlanError(ValueError):
    """Options that are invalid, alone or together."""


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a simulated service for one attempt."""

    verdict: Verdict
    work_seconds: float
    duplicate: bool


@dataclass(frozen=True)
class Mix:
    """The behaviour of the simulated services; shares are percentages of all attempts."""

    work_ms: tuple[int, int] = (0, 0)
    fail_retryable: float = 0.0
    fail_final: float = 0.0
    rate_limit: float = 0.0
    lose: float = 0.0
    duplicate: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.fail_retryable, self.fail_final, self.rate_limit, self.lose)
        if not all(0.0 <= share <= 100.0 for share in (*shares, self.duplicate)):
            raise PlanError("a share of attempts must be a percentage from 0 to 100")
        if math.fsum(shares) > 100.0:
            raise PlanError(
                "--fail-retryable, --fail-final, --rate-limit and --lose exclude each other: "
                f"their sum must not exceed 100, and is {math.fsum(shares):g}"
            )

    def behaviour(self, *identity: object) -> Behaviour:
        """Derived only from the attempt's identity, so that the order of attempts does not matter."""
        rng = random.Random(":".join(map(str, identity)))
        drawn = rng.uniform(0.0, 100.0)
        verdict: Verdict = "succeeded"
        shares = (self.fail_retryable, self.fail_final, self.rate_limit, self.lose)
        for share, named in zip(shares, VERDICTS[1:], strict=True):
            if drawn < share:
                verdict = named
                break
            drawn -= share
        work_seconds = rng.uniform(*self.work_ms) / 1_000
        return Behaviour(verdict, work_seconds, rng.uniform(0.0, 100.0) < self.duplicate)


@dataclass(frozen=True)
class LoadPlan:
    """None means: no such limit or rate, the template's own tenant, or services that run elsewhere."""

    jobs: int | None = None
    seconds: float | None = None
    in_flight: int = IN_FLIGHT_DEFAULT
    rate: float | None = None
    tenants: int | None = None
    drain_seconds: float = DRAIN_SECONDS_DEFAULT
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**32))
    services: Mix | None = None

    def __post_init__(self) -> None:
        _within("--jobs", self.jobs, 1, JOBS_MAX)
        _within("--seconds", self.seconds, 0.001, SECONDS_MAX)
        _within("--in-flight", self.in_flight, 1, IN_FLIGHT_MAX)
        _within("--rate", self.rate, 0.001, RATE_MAX)
        _within("--tenants", self.tenants, 1, TENANTS_MAX)
        _within("--drain-seconds", self.drain_seconds, 0.0, SECONDS_MAX)
        _within("--seed", self.seed, 0, SEED_MAX)

    @property
    def jobs_max(self) -> int:
        """A run that is limited in time has no other limit unless one is given."""
        if self.jobs is not None:
            return self.jobs
        return JOBS_DEFAULT if self.seconds is None else JOBS_MAX

    def due(self, elapsed_seconds: float) -> int:
        """How many commands a paced run should have sent after this time. Meaningless without a rate."""
        if self.rate is None:
            return 0
        due = min(self.jobs_max, math.floor(elapsed_seconds * self.rate) + 1)
        return due if self.seconds is None else min(due, math.ceil(self.seconds * self.rate))


def read_work_ms(text: str) -> tuple[int, int]:
    """`20`, or `20-80`"""
    match = _WORK_MS.fullmatch(text.strip())
    if not match:
        raise PlanError(f"{text!r} is not a time in milliseconds such as 20, or a range such as 20-80")
    least, most = int(match[1]), int(match[2] or match[1])
    if not least <= most <= WORK_MS_MAX:
        raise PlanError(f"{text!r} must be ascending and between 0 and {WORK_MS_MAX}")
    return least, most


def _within(name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise PlanError(f"{name} must be between {least:g} and {most:,.0f}, not {value:g}")
