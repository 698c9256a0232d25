"""The cap on unacknowledged directives, for a bus on which tenants do not take turns.

A tenant may have so many unacknowledged directives for one service on one lane (`tenant_window.py`). Further attempts
are held in the ledger and published in their order as others are acknowledged. So a flood waits in the ledger and not
on the lane.

The count is kept in memory and costs no write: it follows from the jobs that this process decides. At the start it is
taken from the ledger. Other processes may decide jobs that this one has counted, so it asks the ledger about just
those: while something waits for them, and for as long as others are known to get its acknowledgements. Each process has
a cap of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from time import monotonic

from lucius.domain.attempt import DispatchStatus
from lucius.domain.job import Job, JobSpec
from lucius.domain.step import StepSpec, StepStatus
from lucius.engines.tenant_window import TenantWindows
from lucius.ports.ledger import HeldLine, Ledger, LedgerUnavailable
from lucius.ports.observer import Observer

LOOP = "tenant cap"
COUNTED_MAX = 500
"""Jobs loaded at once while the count is taken from the ledger."""
LINES_MAX = 2_000
"""Lines in which attempts are held that one look finds; a look follows every few moments."""
RECOUNT_SECONDS = 0.1
"""How often a process asks whether what it has counted was acknowledged elsewhere, while something waits for it."""
RECOUNT_OFTEN_SECONDS = 0.02
"""The same while other processes do get its acknowledgements."""
OTHERS_SECONDS = 10.0
"""So long after it has found such an acknowledgement, a process expects more of them."""
UNCOMMITTED_SECONDS = 0.1
"""A job that was let go so shortly before is not asked about: the ledger may not have it yet."""
RECOUNT_SHARE = 0.1
"""Of the time, for these questions: where each job is a request, they leave a slow ledger time for everything else."""
GATHER_SECONDS = 0.01
"""After an ACK, others are waited for, because releasing several at once costs little more than releasing one; but no
longer than until there is room for half of what a line may have."""
RELEASES_AT_ONCE = 32
"""Lines whose held attempts are read from the ledger at the same time, and released in one turn."""
ASKED_MAX = 5_000
"""Jobs that one such question is about."""

Release = Callable[[list[str]], Awaitable[None]]
"""Has the held attempts of these jobs published."""


class TenantCap:
    def __init__(
        self, ledger: Ledger, engine: str, maximum: int, look_seconds: float, counts_unsent: bool = True
    ) -> None:
        """`look_seconds`: how often to look for what other processes hold. `counts_unsent`: whether an attempt that is
        decided and not held is published next; if not, `admit` is asked right before that."""
        self._ledger = ledger
        self._engine = engine
        self._windows = TenantWindows(maximum)
        self._look_seconds = look_seconds
        self._counts_unsent = counts_unsent
        self._unacknowledged: dict[HeldLine, set[str]] = {}
        self._counted_in: dict[str, HeldLine] = {}
        self._on_their_way: dict[str, float] = {}
        """Since when jobs were let go of which it is not known yet that the bus has their directive."""
        self._waiting: set[HeldLine] = set()
        self._newly_waiting: set[HeldLine] = set()
        """Lines in which an attempt was held since the ledger was last asked about them."""
        self._has_counted = False
        self._has_news = asyncio.Event()
        self._runs_low = asyncio.Event()
        """Some line has room for half of what it may have: its service would soon be idle."""

    def holds_back(self, spec: JobSpec, step: StepSpec) -> bool:
        """Whether a new attempt has to wait: behind others that wait, or for an ACK. A job that is counted already may
        go on."""
        if not self._has_counted:
            return True
        line = HeldLine(spec.tenant_id, spec.routing.lane, step.service)
        if self._counted_in.get(spec.job_id) == line:
            return False
        return line in self._waiting or self._room(line) == 0

    def admit(self, job: Job) -> bool:
        """Count a job whose attempt is about to be published, unless it has to wait."""
        if self.holds_back(job.spec, job.current_step.spec):
            return False
        self.forget(job.job_id)
        self._let_go(job.job_id, _line(job))
        return True

    async def open(self, observer: Observer) -> None:
        """Count before the first job is decided; if the ledger does not answer, attempts are held until it does."""
        try:
            await self.count()
        except LedgerUnavailable as error:
            observer.loop_failed(LOOP, error)

    # --- Counting ----------------------------------------------------------------------------------------------------

    async def count(self) -> None:
        """Take the count from the ledger: what a predecessor of this process has left."""
        after_id: str | None = None
        while job_ids := await self._ledger.unacknowledged(self._engine, COUNTED_MAX, after_id):
            after_id = job_ids[-1]
            for job in (await self._ledger.load(job_ids)).values():
                self.decided(job)
        self._has_counted = True

    def decided(self, job: Job) -> None:
        """Count a job, or no longer, as its new state says."""
        job_id = job.spec.job_id
        step = job.steps[job.current_index]
        # Perhaps another process published it, and this one has got a callback.
        self._windows.met(_line(job))
        line = None
        if step.status is StepStatus.DISPATCHING and _is_on_its_way(job):
            if not self._counts_unsent:
                return
            line = _line(job)
        elif step.status is StepStatus.INITIATED:
            line = _line(job)
            counted_at = self._on_their_way.pop(job_id, None)
            if counted_at is not None:
                self._windows.published_within(monotonic() - counted_at)
        before = self._counted_in.get(job_id)
        if line != before:
            self.forget(job_id)
            if line is not None and step.status is StepStatus.DISPATCHING:
                self._let_go(job_id, line)
            elif line is not None:
                self._count(job_id, line)

    def committed(self, job: Job) -> None:
        """If the attempt is held, there is something to release when its turn comes."""
        attempt = job.steps[job.current_index].attempt
        if attempt is not None and attempt.is_held:
            line = _line(job)
            self._waiting.add(line)
            self._newly_waiting.add(line)
            self._has_news.set()

    def forget(self, job_id: str) -> None:
        line = self._counted_in.pop(job_id, None)
        if line is None:
            return
        self._on_their_way.pop(job_id, None)
        jobs = self._unacknowledged[line]
        jobs.discard(job_id)
        self._windows.acknowledged(line)
        if not jobs:
            del self._unacknowledged[line]
            self._windows.left(line)
        if line in self._waiting:
            self._has_news.set()
            if 2 * self._room(line) >= self._windows.size(line):
                self._runs_low.set()

    def _let_go(self, job_id: str, line: HeldLine) -> None:
        """Count a job whose directive is about to be published."""
        self._count(job_id, line)
        self._on_their_way[job_id] = monotonic()

    def _count(self, job_id: str, line: HeldLine) -> None:
        self._counted_in[job_id] = line
        jobs = self._unacknowledged.get(line)
        if jobs is None:
            jobs = self._unacknowledged[line] = set()
            self._windows.entered(line)
        jobs.add(job_id)

    # --- Releasing ---------------------------------------------------------------------------------------------------

    async def run(self, release: Release, observer: Observer, may_release: Callable[[], bool] = lambda: True) -> None:
        """Release what may be published, whenever there is room, until cancelled. `may_release`: whether the bus takes
        anything now; if not, whatever is released would only be held again."""
        looked_at = recount_at = others_until = -inf
        while True:
            self._has_news.clear()
            self._runs_low.clear()
            now = monotonic()
            try:
                if not self._has_counted:
                    await self.count()
                if now - looked_at >= self._look_seconds:
                    looked_at = now
                    await self._look()
                if now >= recount_at:
                    if await self._recount(has_others=now < others_until):
                        others_until = now + OTHERS_SECONDS
                    self._windows.hears_late = now < others_until
                    is_often = self._windows.hears_late and self._waiting
                    interval = RECOUNT_OFTEN_SECONDS if is_often else RECOUNT_SECONDS
                    recount_at = now + max(interval, (monotonic() - now) / RECOUNT_SHARE)
                if may_release():
                    await self._release_all([line for line in self._waiting if self._room(line) > 0], release)
            except Exception as error:
                observer.loop_failed(LOOP, error)
                await asyncio.sleep(self._look_seconds)
            else:
                observer.loop_worked(LOOP)
            now, pause = monotonic(), self._look_seconds
            if self._waiting or now < others_until:
                pause = min(max(recount_at - now, 0.0), pause)
            try:
                async with asyncio.timeout(pause):
                    await self._has_news.wait()
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._runs_low.wait()
            except TimeoutError:
                pass

    def _room(self, line: HeldLine) -> int:
        return max(0, self._windows.size(line) - len(self._unacknowledged.get(line, ())))

    async def _look(self) -> None:
        """Find what waits, whoever holds it."""
        lines = await self._ledger.held_lines(LINES_MAX)
        self._waiting.update(lines)
        for line in lines:
            self._windows.met(line)

    async def _recount(self, has_others: bool) -> bool:
        """Forget what was acknowledged elsewhere; whether there was any. Of full lines in which something waits, or of
        all if other processes get acknowledgements: a line that is half full of what is gone holds up its tenant."""
        lines = [
            line for line in self._unacknowledged if has_others or (line in self._waiting and self._room(line) == 0)
        ]
        just_now = monotonic() - UNCOMMITTED_SECONDS
        asked = [
            job_id
            for line in lines
            for job_id in self._unacknowledged[line]
            if self._on_their_way.get(job_id, 0.0) <= just_now
        ][:ASKED_MAX]
        if not asked:
            return False
        causes = await self._ledger.wait_causes(asked)
        gone = [job_id for job_id in asked if job_id in self._counted_in and causes.get(job_id) not in ("BUS", "ACK")]
        for job_id in gone:
            self.forget(job_id)
        return bool(gone)

    async def _release_all(self, lines: Sequence[HeldLine], release: Release) -> None:
        for first in range(0, len(lines), RELEASES_AT_ONCE):
            some = lines[first : first + RELEASES_AT_ONCE]
            for done in await asyncio.gather(*(self._release(line, release) for line in some), return_exceptions=True):
                if isinstance(done, BaseException):
                    raise done

    async def _release(self, line: HeldLine, release: Release) -> None:
        room = self._room(line)
        self._newly_waiting.discard(line)
        job_ids = await self._ledger.held(line, self._engine, room)
        if len(job_ids) < room and line not in self._newly_waiting:
            self._waiting.discard(line)
        job_ids = job_ids[: self._room(line)]
        for job_id in job_ids:
            self._let_go(job_id, line)
        try:
            await release(job_ids)
        except BaseException:
            for job_id in job_ids:
                self.forget(job_id)
            self._waiting.add(line)
            raise


def _line(job: Job) -> HeldLine:
    return HeldLine(job.spec.tenant_id, job.spec.routing.lane, job.steps[job.current_index].spec.service)


def _is_on_its_way(job: Job) -> bool:
    attempt = job.steps[job.current_index].attempt
    return attempt is not None and not attempt.is_held and attempt.dispatch is DispatchStatus.PENDING
