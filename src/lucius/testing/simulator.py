"""A simulation of LUCIUS in one process and virtual time: jobs, bus, workers, sweeper and operators around `decide`.

Whatever can go wrong between the parts does, at random from a seed: publishes are refused, lost, deferred
or doubled, deliveries are late and out of order, workers die before and after their ACK, answers get lost, clocks
disagree, processes die between two writes. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Generator, Iterator
from itertools import count

from msgspec import Struct

from lucius.domain.attempt import DispatchStatus, Failure, Verdict
from lucius.domain.decide import decide
from lucius.domain.effects import Decision, Event, Outcome, PublishDirective, SettleDirective
from lucius.domain.inputs import (
    Acked,
    CancelAsked,
    DeadlinePassed,
    DirectiveDied,
    DirectiveWithdrawn,
    DispatchDue,
    ForceCancelAsked,
    HeartbeatSeen,
    Input,
    PauseAsked,
    PublishDeferred,
    Published,
    PublishFailed,
    PublishHeld,
    Resulted,
    ResumeAsked,
)
from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.domain.time import Instant, after
from lucius.testing.invariants import check_decision, check_trail
from lucius.testing.samples import START, ManualClock, accepted


class Faults(Struct, frozen=True, kw_only=True):
    """Probabilities of faults, each between 0 and 1."""

    publish_refused: float = 0.04
    publish_unreachable: float = 0.08
    publish_unreported: float = 0.05
    """The bus took it, and the process died before it could record that."""
    process_died: float = 0.05
    """The process died between the commit and the publish."""
    held_back: float = 0.15
    """The tenant has as many unacknowledged directives as it may: the next attempt waits."""
    message_lost: float = 0.04
    message_died: float = 0.03
    """The bus gives up on it, and says so."""
    message_doubled: float = 0.15
    settling_lost: float = 0.1
    withdrawal_lost: float = 0.2
    """The process died between withdrawing a directive and recording that."""
    worker_died: float = 0.08
    """At each of three points: before the ACK, after it, before the RESULT."""
    callback_lost: float = 0.12
    callback_doubled: float = 0.12
    step_failed: float = 0.12
    step_failed_for_good: float = 0.01
    rate_limited: float = 0.05
    cancelled: float = 0.05
    force_cancelled: float = 0.02
    paused: float = 0.06
    never_resumed: float = 0.3
    clock_skew_seconds: float = 3.0
    slow_step: float = 0.1
    """Works longer than its lease without a heartbeat."""


NO_FAULTS = Faults(**dict.fromkeys(Faults.__struct_fields__, 0.0))

POLICY = Policy(
    max_attempts=4,
    ack_timeout_seconds=20.0,
    queue_timeout_seconds=120.0,
    lease_seconds=40.0,
    max_step_seconds=120.0,
    dispatch_backoff_seconds=(2.0, 8.0),
    ack_backoff_seconds=(2.0, 8.0),
    execution_backoff_seconds=(2.0, 8.0),
)
SWEEP_LAG_SECONDS = 2.0
DEADLINE_SECONDS = 1_500.0


class _Ids(Struct, frozen=True):
    """One attempt, as its directive names it."""

    job_id: str
    step_id: str
    attempt_no: int
    lease_id: str


class Simulation:
    def __init__(self, seed: int, jobs: int, faults: Faults) -> None:
        self.jobs: dict[str, Job] = {}
        self.trails: dict[str, list[Event]] = {}
        self.outcomes: dict[Outcome, int] = {}
        self.decisions = 0
        self._dice = random.Random(seed)
        self._faults = faults
        self._clock = ManualClock(claim_seconds=5.0)
        self._leases: dict[str, set[str]] = {}
        self._queued: dict[tuple[str, str, int], int] = {}
        self._settled: set[tuple[str, str, int]] = set()
        self._now: Instant = START
        self._agenda: list[tuple[Instant, int, Callable[[], object]]] = []
        self._order = count()
        for _ in range(jobs):
            self._later(self._dice.uniform(0, 200), self._accept)

    def run(self) -> None:
        """Run until nothing is left to do."""
        while self._agenda:
            self._now, _, act = heapq.heappop(self._agenda)
            act()

    # --- Randomness and agenda ---------------------------------------------------------------------------------------

    def _happens(self, share: float) -> bool:
        return self._dice.random() < share

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._agenda, (after(self._now, max(seconds, 0.0)), next(self._order), act))

    def _at(self, moment: Instant, act: Callable[[], object]) -> None:
        self._later((moment - self._now) / 1000 + self._dice.uniform(0, SWEEP_LAG_SECONDS), act)

    # --- The engine --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._clock.set(self._now)
        start_at = after(self._now, 60) if self._happens(0.1) else None
        steps = ["ocr", "embedding", "sis"][: self._dice.randint(1, 3)]
        fact = accepted(self._clock, steps=steps, policy=POLICY, deadline_seconds=DEADLINE_SECONDS, not_before=start_at)
        job_id = fact.spec.job_id
        self._leases[job_id] = set()
        self.trails[job_id] = []
        self._decide(None, job_id, fact)
        if self._happens(self._faults.cancelled):
            self._later(self._dice.uniform(0, 150), lambda: self._tell(job_id, CancelAsked("operator")))
        if self._happens(self._faults.force_cancelled):
            force = ForceCancelAsked("operator", "it hangs")
            self._later(self._dice.uniform(0, 200), lambda: self._tell(job_id, force))
        if self._happens(self._faults.paused):
            self._later(self._dice.uniform(0, 60), lambda: self._tell(job_id, PauseAsked("operator")))
            if not self._happens(self._faults.never_resumed):
                self._later(self._dice.uniform(60, 200), lambda: self._tell(job_id, ResumeAsked("operator")))

    def _tell(self, job_id: str, fact: Input) -> Outcome:
        return self._decide(self.jobs[job_id], job_id, fact).outcome

    def _decide(self, before: Job | None, job_id: str, fact: Input) -> Decision:
        skew = self._dice.uniform(-1, 1) * self._faults.clock_skew_seconds
        now = after(self._now, skew)
        self._clock.is_holding_back = self._happens(self._faults.held_back)
        decision = decide(before, fact, now, self._clock)
        check_decision(before, fact, decision, self._leases[job_id])
        self.decisions += 1
        self.outcomes[decision.outcome] = self.outcomes.get(decision.outcome, 0) + 1
        job = self.jobs[job_id] = decision.job
        self.trails[job_id] += decision.events
        for effect in decision.effects:
            if isinstance(effect, PublishDirective) and not self._happens(self._faults.process_died):
                self._later(self._dice.uniform(0, 0.5), lambda: self._publish(_current(job)))
            elif isinstance(effect, SettleDirective) and not self._happens(self._faults.settling_lost):
                self._settled.add((job_id, job.steps[effect.step_index].spec.step_id, effect.attempt_no))
        if isinstance(fact, CancelAsked | Published) and job.awaits_withdrawal:
            self._later(self._dice.uniform(0, 0.5), lambda: self._withdraw(_current(job)))
        if job is not before:
            self._set_timers(job)
        return decision

    def _set_timers(self, job: Job) -> None:
        """A sweeper that always runs, though it may be late."""
        if job.wake_at is None:
            return
        attempt = job.current_step.attempt
        self._at(job.wake_at, lambda: self._sweep(job.job_id))
        if attempt is not None and attempt.dispatch is DispatchStatus.PENDING:
            self._at(attempt.claimed_until, lambda: self._take_up(job.job_id))

    def _sweep(self, job_id: str) -> None:
        job = self.jobs[job_id]
        step = job.current_step
        key = (job_id, step.spec.step_id, step.attempt_no)
        is_queued = self._queued.get(key, 0) > 0 and key not in self._settled
        outcome = self._tell(job_id, DeadlinePassed(still_queued=is_queued))
        if outcome is Outcome.IGNORED and self.jobs[job_id].wake_at is not None:
            self._later(SWEEP_LAG_SECONDS, lambda: self._sweep_if_due(job_id))

    def _sweep_if_due(self, job_id: str) -> None:
        wake_at = self.jobs[job_id].wake_at
        if wake_at is not None and wake_at <= self._now:
            self._sweep(job_id)

    def _take_up(self, job_id: str) -> None:
        attempt = self.jobs[job_id].current_step.attempt
        if attempt is None or attempt.dispatch is not DispatchStatus.PENDING or self.jobs[job_id].is_terminal:
            return
        if self._tell(job_id, DispatchDue()) is Outcome.IGNORED:
            self._later(SWEEP_LAG_SECONDS, lambda: self._take_up(job_id))

    # --- The bus -----------------------------------------------------------------------------------------------------

    def _publish(self, ids: _Ids) -> None:
        faults, about = self._faults, (ids.step_id, ids.attempt_no)
        if self._happens(faults.publish_unreachable):
            if self._happens(0.5):
                self._enqueue(ids)
            self._tell(ids.job_id, PublishDeferred(*about))
        elif self._happens(faults.held_back):
            self._tell(ids.job_id, PublishHeld(*about))  # As the Temporal engine does it.
        elif self._happens(faults.publish_refused):
            self._tell(ids.job_id, PublishFailed(*about, "the bus will not take it"))
        else:
            self._enqueue(ids)
            if not self._happens(faults.publish_unreported):
                self._later(self._dice.uniform(0, 1), lambda: self._tell(ids.job_id, Published(*about)))

    def _enqueue(self, ids: _Ids) -> None:
        if self._happens(self._faults.message_lost):
            return
        if self._happens(self._faults.message_died):
            died = DirectiveDied(ids.step_id, ids.attempt_no, "delivered too often")
            self._later(self._dice.uniform(0, 30), lambda: self._tell(ids.job_id, died))
            return
        key = (ids.job_id, ids.step_id, ids.attempt_no)
        for _ in range(2 if self._happens(self._faults.message_doubled) else 1):
            self._queued[key] = self._queued.get(key, 0) + 1
            wait = self._dice.expovariate(1 / 2.0) if self._happens(0.9) else self._dice.uniform(0, 150)
            self._later(wait if self._faults is not NO_FAULTS else 0.1, lambda: self._deliver(ids))

    def _deliver(self, ids: _Ids) -> None:
        key = (ids.job_id, ids.step_id, ids.attempt_no)
        self._queued[key] -= 1
        if key not in self._settled:
            self._go_on(self._work(ids))

    def _withdraw(self, ids: _Ids) -> None:
        key = (ids.job_id, ids.step_id, ids.attempt_no)
        if self._queued.get(key, 0) > 0 and key not in self._settled:
            self._settled.add(key)
            if not self._happens(self._faults.withdrawal_lost):
                self._tell(ids.job_id, DirectiveWithdrawn(ids.step_id, ids.attempt_no))

    # --- A worker ----------------------------------------------------------------------------------------------------

    def _go_on(self, work: Iterator[float]) -> None:
        """A worker is a generator of waits."""
        wait = next(work, None)
        if wait is not None:
            self._later(wait, lambda: self._go_on(work))

    def _work(self, ids: _Ids) -> Iterator[float]:
        faults, about = self._faults, (ids.step_id, ids.attempt_no, ids.lease_id)
        if self._happens(faults.worker_died):
            return
        outcome = yield from self._call(ids.job_id, Acked(*about))
        if outcome not in (Outcome.APPLIED, Outcome.DUPLICATE) or self._happens(faults.worker_died):
            return
        if self._happens(faults.slow_step):
            yield self._dice.uniform(30, 200)
        for tenth in range(1, self._dice.randint(2, 6)):
            yield self._dice.uniform(0.5, 8)
            outcome = yield from self._call(ids.job_id, HeartbeatSeen(*about, progress=tenth / 10))
            if outcome in (Outcome.STALE_ATTEMPT, Outcome.JOB_TERMINAL):
                return
        if not self._happens(faults.worker_died):
            yield from self._call(ids.job_id, self._result(about))

    def _result(self, about: tuple[str, int, str]) -> Resulted:
        failure = Failure("DICE", "chosen at random")
        if self._happens(self._faults.rate_limited):
            return Resulted(*about, verdict=Verdict.FAILED, rate_limited_seconds=5.0)
        if self._happens(self._faults.step_failed_for_good):
            return Resulted(*about, verdict=Verdict.FAILED, retryable=False, error=failure)
        if self._happens(self._faults.step_failed):
            return Resulted(*about, verdict=Verdict.FAILED, error=failure)
        return Resulted(*about, verdict=Verdict.SUCCEEDED)

    def _call(self, job_id: str, fact: Input) -> Generator[float, None, Outcome]:
        """Call back until there is an answer; request, answer, or both may get lost, or arrive twice."""
        while True:
            yield self._dice.uniform(0, 0.5)
            if self._happens(self._faults.callback_lost):
                yield 2.0
                continue
            outcome = self._tell(job_id, fact)
            if self._happens(self._faults.callback_doubled):
                self._later(self._dice.uniform(0, 30), lambda: self._tell(job_id, fact))
            if not self._happens(self._faults.callback_lost):
                return outcome
            yield 2.0

    # --- The end -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every job has ended, in time, with one accepted result for every step that succeeded."""
        grace = 3 * SWEEP_LAG_SECONDS + 2 * self._faults.clock_skew_seconds
        for job in self.jobs.values():
            assert job.is_terminal, f"job {job.job_id} is {job.status} forever"
            assert job.completed_at is not None
            assert job.completed_at <= after(job.spec.deadline_at, grace), "a job ends by its deadline"
            trail = self.trails[job.job_id]
            check_trail(job, [(event.type, event.step_id, event.attempt_no, event.data) for event in trail])


def _current(job: Job) -> _Ids:
    step = job.current_step
    assert step.attempt is not None
    return _Ids(job.job_id, step.spec.step_id, step.attempt.attempt_no, step.attempt.lease_id)
