"""Simulated workers: a queue and a number of slots per worker_id, and random response times.

Time within a pool is continuous: a worker takes the next job the instant it has finished one, whenever that result is
processed. `advance` returns what has happened up to now.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from lucius.domain.time import Instant
from lucius.runbooks.core.messages import WorkerError, WorkerResult
from lucius.runbooks.rehearsal.behaviour import POLL_FACTOR, SLOW_FACTOR, Behaviour, draw, millis


class Job(Struct, frozen=True):
    id: str
    kind: str
    execution_id: int
    worker_id: str
    function: str
    sent_at: Instant
    is_poll_step: bool
    poll_count: int
    output_fields: tuple[str, ...]

    @property
    def execution(self) -> str:
        return f"{self.kind}-{self.execution_id}"


class SimulatedResult(Struct, frozen=True):
    job: Job
    at: Instant
    result: WorkerResult
    is_running: bool


class Busy(Struct):
    """Utilization of a worker_id."""

    worker_id: str
    slots: int
    jobs: int = 0
    in_flight_max: int = 0
    in_flight_max_at: Instant | None = None
    queue_max: int = 0
    queue_max_at: Instant | None = None
    wait_max_seconds: float = 0.0
    """The longest wait of a job for a free worker."""


class Busiest(Struct):
    """The time with the most outstanding jobs, running and queued."""

    moment_at: Instant | None = None
    in_flight: int = 0
    queued: int = 0


class Pool:
    def __init__(self, behaviour: Behaviour, seed: int) -> None:
        self._behaviour = behaviour
        self._seed = seed
        self._queues: dict[str, _Queue] = {}
        self._due: list[tuple[Instant, int, str, SimulatedResult | None]] = []
        """Time, a sequence number, worker_id; the result, if there is one."""
        self._number = 0
        self._working = 0
        self.busiest = Busiest()
        self._waiting: set[str] = set()
        self._withdrawn: set[str] = set()
        self.counts: dict[str, int] = {
            "jobs": 0, "success": 0, "running": 0, "fail": 0, "throttle": 0, "lost": 0, "withdrawn": 0,
        }  # fmt: skip

    @property
    def busy(self) -> list[Busy]:
        return [self._queues[name].busy for name in sorted(self._queues)]

    @property
    def next_at(self) -> Instant | None:
        return self._due[0][0] if self._due else None

    def take(self, jobs: Sequence[Job], now: Instant) -> None:
        for job in jobs:
            queue = self._queues.get(job.worker_id)
            if queue is None:
                slots = self._behaviour.slots(job.worker_id)
                queue = self._queues[job.worker_id] = _Queue(Busy(job.worker_id, slots))
            self.counts["jobs"] += 1
            queue.busy.jobs += 1
            queue.waiting.append(job)
            self._waiting.add(job.id)
            self._start(queue, now)
        if self._working + len(self._waiting) > self.busiest.in_flight + self.busiest.queued:
            self.busiest = Busiest(now, self._working, len(self._waiting))

    def withdraw(self, job_ids: Sequence[str]) -> None:
        """The results of these are no longer needed; workers skip those they have not started."""
        self._withdrawn.update(self._waiting.intersection(job_ids))

    def advance(self, now: Instant) -> list[SimulatedResult]:
        """Everything that ends up to now, in order."""
        answers = []
        while self._due and self._due[0][0] <= now:
            at, _, worker_id, answer = heapq.heappop(self._due)
            queue = self._queues[worker_id]
            queue.working -= 1
            self._working -= 1
            if answer is not None:
                answers.append(answer)
            self._start(queue, at)
        return answers

    def _start(self, queue: _Queue, now: Instant) -> None:
        while queue.waiting and queue.working < queue.busy.slots:
            job = queue.waiting.popleft()
            self._waiting.discard(job.id)
            if job.id in self._withdrawn:
                self._withdrawn.discard(job.id)
                self.counts["withdrawn"] += 1
                continue
            queue.working += 1
            self._working += 1
            queue.busy.wait_max_seconds = max(queue.busy.wait_max_seconds, (now - job.sent_at) / 1000)
            self._work(job, now)
        queue.note(now)

    def _work(self, job: Job, now: Instant) -> None:
        mix = self._behaviour.of(job.function)
        chance = draw(self._seed, job.execution, job.id, mix)
        seconds, ending = chance.duration_seconds, chance.ending
        rounds = mix.poll_rounds * (SLOW_FACTOR if chance.is_slow else 1)
        is_running = job.is_poll_step and job.poll_count < rounds
        if is_running:
            ending = "running"
        if job.is_poll_step and job.poll_count:
            seconds = seconds * POLL_FACTOR / (SLOW_FACTOR if chance.is_slow else 1)
        self.counts[ending] += 1
        at = now + millis(seconds)
        answer = None if ending == "lost" else SimulatedResult(job, at, _result(job, ending), is_running)
        self._number += 1
        heapq.heappush(self._due, (at, self._number, job.worker_id, answer))


class _Queue:
    def __init__(self, busy: Busy) -> None:
        self.busy = busy
        self.waiting: deque[Job] = deque()
        self.working = 0

    def note(self, now: Instant) -> None:
        if self.working > self.busy.in_flight_max:
            self.busy.in_flight_max, self.busy.in_flight_max_at = self.working, now
        if len(self.waiting) > self.busy.queue_max:
            self.busy.queue_max, self.busy.queue_max_at = len(self.waiting), now


def _result(job: Job, ending: str) -> WorkerResult:
    if ending == "fail":
        return WorkerResult(job.id, False, None, WorkerError(f"{job.function} failed (rehearsed)", "Rehearsed"))
    if ending == "throttle":
        return WorkerResult(job.id, False, None, WorkerError("throttled (rehearsed)", "Rehearsed", True))
    if ending == "running":
        return WorkerResult(job.id, True, {"complete": False})
    fields: Mapping[str, Any] = {name: f"{name} of {job.execution}" for name in job.output_fields}
    return WorkerResult(job.id, True, fields or None)
