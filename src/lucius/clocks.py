"""Real clocks: this machine's, and that of a database shared by several machines."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from types import TracebackType

from lucius.domain.errors import InfrastructureError
from lucius.domain.time import CLOCK_TOLERANCE_SECONDS, Instant, after
from lucius.ports.clock import Clock, TimeReading

READ_INTERVAL_SECONDS = 10.0
"""How often the database's time is read. Between two readings a quartz drifts by less than a millisecond."""
HOLD_MS_MAX = 1_000
"""A correction backwards by at most this stops the clock until the database has caught up; a larger one is a jump."""

DATABASE_CLOCK, STORAGE_CLOCK = "the database's", "Azure Storage's"
SKEW_SECONDS_MAX = 5.0
"""How far a machine's clock may be from Azure's if leases and deadlines go by it: the shortest lease takes 15 s."""

_FAR_FUTURE: Instant = 1 << 62


class SystemClock:
    """The machine's own clock."""

    @property
    def skew_seconds(self) -> float:
        return 0.0

    def now(self) -> Instant:
        return time.time_ns() // 1_000_000

    def job_id(self) -> str:
        """48 bits of milliseconds, version 7, 74 random bits."""
        raw = bytearray(self.now().to_bytes(6, "big") + os.urandom(10))
        raw[6] = 0x70 | (raw[6] & 0x0F)
        raw[8] = 0x80 | (raw[8] & 0x3F)
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def lease_id(self) -> str:
        return os.urandom(16).hex()

    def jitter(self) -> float:
        return random.random()


class DatabaseClock(SystemClock):
    """The time of a shared database, so that all processes that use it agree, whatever their machines' clocks say.

    It is read at the start and every few seconds. In between, the monotonic clock is used, which cannot be set. The
    machine's own clock is used only to compute the skew.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[TimeReading]],
        machine: Clock,
        skew_seconds_max: float,
        failed: Callable[[str, BaseException], None],
        interval_seconds: float = READ_INTERVAL_SECONDS,
    ) -> None:
        """`failed` is called for failed readings; the clock continues from the last one."""
        self._read = read
        self._machine = machine
        self._skew_seconds_max = skew_seconds_max
        self._failed = failed
        self._interval_seconds = interval_seconds
        self._reading = TimeReading(machine.now(), time.monotonic(), float("inf"))
        self._latest: Instant = 0
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DatabaseClock:
        """Raises `InfrastructureError` if the machine's clock is too far from the database's."""
        self._reading = await self._read()
        problem = skew_problem(self.skew_seconds, self._skew_seconds_max)
        if problem is not None:
            raise InfrastructureError.unavailable(problem)
        self._following = asyncio.create_task(self._follow(), name="clock")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    @property
    def skew_seconds(self) -> float:
        return (self._machine.now() - self.now()) / 1000

    def now(self) -> Instant:
        now = self._computed(time.monotonic())
        if now < self._latest <= now + HOLD_MS_MAX:
            return self._latest
        self._latest = now
        return now

    def _computed(self, monotonic_at: float) -> Instant:
        return self._reading.at + round((monotonic_at - self._reading.monotonic_at) * 1000)

    def correct(self, reading: TimeReading) -> None:
        """Use this reading, unless it agrees with the last one within its error."""
        difference_ms = reading.at - self._computed(reading.monotonic_at)
        if abs(difference_ms) > reading.error_seconds * 1000:
            self._reading = reading

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                self.correct(await self._read())
            except Exception as error:
                self._failed("clock", error)


class ComparedClock(SystemClock):
    """The machine's own clock, compared with that of a service which cannot be read closely enough to follow it."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._skew: Callable[[], float] = lambda: 0.0

    def compare_with(self, skew: Callable[[], float]) -> None:
        """`skew` says how far the machine's clock is ahead of the service's."""
        self._skew = skew

    @property
    def skew_seconds(self) -> float:
        return self._skew()

    def now(self) -> Instant:
        return self._machine.now()


class SetBack:
    """Detects that a clock was set back: rows with later times must not wait until that time comes again."""

    def __init__(self, at_first: bool = True) -> None:
        """`at_first`: the result of the first call, since the clock may have been set back before this process."""
        self._latest: Instant = _FAR_FUTURE if at_first else 0

    def noticed(self, now: Instant) -> bool:
        before, self._latest = self._latest, now
        return now < after(before, -CLOCK_TOLERANCE_SECONDS)


def skew_problem(skew_seconds: float, seconds_max: float, other: str = DATABASE_CLOCK) -> str | None:
    """The problem with the machine's clock, if any, and what to do about it. `other`: whose it is compared with."""
    if abs(skew_seconds) <= seconds_max:
        return None
    direction = "ahead of" if skew_seconds > 0 else "behind"
    if other == STORAGE_CLOCK:
        return (
            f"this machine's clock is {abs(skew_seconds):.1f} s {direction} {other}: correct it (NTP), because leases"
            f" and deadlines go by it (at most {seconds_max:g} s are allowed)"
        )
    return (
        f"this machine's clock is {abs(skew_seconds):.1f} s {direction} {other}: correct it (NTP), because"
        f" tokens and certificates expire by it, or raise LUCIUS_CLOCK_SKEW_SECONDS_MAX ({seconds_max:g})"
    )
