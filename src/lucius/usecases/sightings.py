"""Who is there: which instances of services and function workers ask for work.

Kept in memory, and written in the background, so that a pull costs nothing and all processes agree within seconds. What
a process sees itself takes precedence over what it has read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from lucius.domain.step import StepStatus
from lucius.domain.time import Instant, after, iso
from lucius.ports.clock import Clock
from lucius.ports.ledger import Change
from lucius.ports.observer import Observer
from lucius.ports.workers import Failures, Sighting, WorkerKind, Workers

FLUSH_SECONDS = 3.0
"""How often an instance's sighting is written at most, and those of other processes are read."""
ABSENT_SECONDS = 30.0
"""Whoever has not asked for work for this long is not there."""
KEPT_MAX = 2_000
"""Instances that are remembered."""
KEPT_SECONDS = 7 * 86_400.0
FORGET_SECONDS = 60.0
INSTANCE_CHARS_MAX = 128
MILLIS_OF_MINUTE = 60_000
MINUTES_OF_HOUR = 60

_Key = tuple[WorkerKind, str, str]


class Sightings:
    def __init__(self, store: Workers, clock: Clock, observer: Observer) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._known: dict[_Key, Sighting] = {}
        self._unwritten: set[_Key] = set()
        self._forgot_at: Instant = 0
        self._failed: Counter[tuple[_Key, int]] = Counter()
        """By instance and minute: what is not written yet."""
        self._failures: dict[_Key, int] = {}
        """Of the last hour, as last read."""

    def saw(
        self, kind: WorkerKind, name: str, instance: str, version: str | None = None, in_work: int | None = None
    ) -> None:
        """An instance asks for work, or shows that it works."""
        now, key = self._clock.now(), (kind, name, instance)
        before = self._known.get(key)
        if before is None and len(self._known) >= KEPT_MAX:
            self._drop_oldest()
        self._known[key] = Sighting(
            kind=kind,
            name=name,
            instance=instance,
            version=version,
            in_work=in_work,
            first_seen_at=now if before is None else before.first_seen_at,
            last_seen_at=now,
        )
        self._unwritten.add(key)
        self._observer.worker_seen()

    def failed(self, kind: WorkerKind, name: str, instance: str, count: int = 1) -> None:
        """Attempts of this instance failed."""
        key = ((kind, name, instance[:INSTANCE_CHARS_MAX]), self._clock.now() // MILLIS_OF_MINUTE)
        if key in self._failed or len(self._failed) < KEPT_MAX:
            self._failed[key] += count
            self._observer.worker_seen()

    def worker_failed(self, instance: str, count: int) -> None:
        """Jobs of this instance failed, whichever function workers it is."""
        names = [one.name for one in self._known.values() if (one.kind, one.instance) == (WorkerKind.WORKER, instance)]
        for name in names:
            self.failed(WorkerKind.WORKER, name, instance, count)

    def failures(self, sighting: Sighting) -> int:
        """How often it failed in the last hour."""
        key = (sighting.kind, sighting.name, sighting.instance)
        return self._failures.get(key, 0) + sum(count for (who, _), count in self._failed.items() if who == key)

    def all(self) -> list[Sighting]:
        """By kind, name and instance."""
        return [self._known[key] for key in sorted(self._known)]

    def is_there(self, sighting: Sighting) -> bool:
        return sighting.last_seen_at > after(self._clock.now(), -ABSENT_SECONDS)

    def services_there(self) -> dict[str, int]:
        """How many instances of each service that was ever seen are there."""
        counts: dict[str, int] = {}
        for one in self._known.values():
            if one.kind is WorkerKind.SERVICE:
                counts[one.name] = counts.get(one.name, 0) + self.is_there(one)
        return counts

    def last_seen(self, kind: WorkerKind, name: str) -> Sighting | None:
        """The instance that was seen last."""
        found = [one for one in self._known.values() if (one.kind, one.name) == (kind, name)]
        return max(found, key=lambda one: one.last_seen_at, default=None)

    def absence(self, kind: WorkerKind, name: str) -> str | None:
        """A sentence without its full stop if nobody of this name is there; None if somebody is."""
        last = self.last_seen(kind, name)
        if last is None:
            return f"no {kind.value} `{name}` has asked for work yet"
        if self.is_there(last):
            return None
        busy = f" (it had {last.in_work} in work then)" if last.in_work else ""
        return f"no {kind.value} `{name}` has asked for work since {iso(last.last_seen_at)}{busy}"

    def absent_service(self, name: str) -> str | None:
        return self.absence(WorkerKind.SERVICE, name)

    def absent_worker(self, name: str) -> str | None:
        return self.absence(WorkerKind.WORKER, name)

    async def flush(self) -> None:
        """Write what is new, and read what other processes have seen."""
        await self._flush_failures()
        writing, self._unwritten = self._unwritten, set()
        try:
            await self._store.write([self._known[key] for key in writing if key in self._known])
            read = await self._store.newest(KEPT_MAX)
        except BaseException:
            self._unwritten |= writing
            raise
        known: dict[_Key, Sighting] = {}
        for one in read:
            key = (one.kind, one.name, one.instance)
            own = self._known.get(key)
            is_newer = own is not None and own.last_seen_at >= one.last_seen_at
            known[key] = replace(own, first_seen_at=one.first_seen_at) if own is not None and is_newer else one
        known |= {key: self._known[key] for key in self._unwritten if key in self._known and key not in known}
        has_news, self._known = known != self._known, known
        if has_news:
            self._observer.worker_seen()

    async def _flush_failures(self) -> None:
        writing, self._failed = self._failed, Counter()
        try:
            await self._store.add_failures(
                [
                    Failures(kind=kind, name=name, instance=instance, minute=minute, failures=count)
                    for ((kind, name, instance), minute), count in writing.items()
                ]
            )
        except BaseException:
            self._failed.update(writing)
            raise
        self._failures = await self._store.failures(self._clock.now() // MILLIS_OF_MINUTE - MINUTES_OF_HOUR)

    async def forget(self) -> None:
        """Delete what is old, now and then."""
        now = self._clock.now()
        if abs(now - self._forgot_at) >= FORGET_SECONDS * 1000:
            self._forgot_at = now
            await self._store.forget(after(now, -KEPT_SECONDS), KEPT_MAX)

    def _drop_oldest(self) -> None:
        oldest = min(self._known, key=lambda key: self._known[key].last_seen_at)
        del self._known[oldest]
        self._unwritten.discard(oldest)


class ServiceFailures(Observer):
    """Notes which instance of a service had an attempt that failed."""

    def __init__(self) -> None:
        self.sightings: Sightings | None = None
        """Set once they are open."""

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        if self.sightings is None:
            return
        for change in changes:
            step = change.after.current_step
            if step.status not in _FAILED or step.attempt is None or step.attempt.acked_by is None:
                continue
            before = None if change.before is None else change.before.current_step
            if before is None or before.status is not step.status or before.attempt_no != step.attempt_no:
                self.sightings.failed(WorkerKind.SERVICE, step.spec.service, step.attempt.acked_by)


_FAILED = (StepStatus.FAILED_RETRY, StepStatus.FAILED_FINAL)
