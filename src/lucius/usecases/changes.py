"""What changed, by name, for those who look: a page learns that something is new, and reads it by itself.

Names are `jobs`, `job:<id>`, `operations`, `runbooks`, `batches`, `batch:<id>`, `workers` and `audit`. Use cases tell
what they change through the observer port, so it does not matter whether the API, the console or a loop has asked for
it. Nothing but names leaves here, and only to followers who may see the tenant that the change concerns. `last` is the
number of the newest change of a name, so that what was rendered before it is known to be out of date.

Followers cost little while much changes: one that was told of a name is left alone until it has taken it, and the more
there are, the less often each is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lucius.domain.runbook_tenants import tenant_of_runbook
from lucius.ports.ledger import Change
from lucius.ports.observer import Observer

DEBOUNCE_SECONDS = 0.25
TOLD_PER_SECOND_MAX = 50
"""How often all followers together are told something: with more than a dozen, each is left alone for longer than
`DEBOUNCE_SECONDS` after it was told."""
EVERY_TENANT = ("*",)
"""Concerns tenants that are not known here: only those who see all tenants are told, others look now and then."""
NAMES_MAX = 16
"""Names that one follower may ask for."""

Sees = Callable[[str], bool]


class Follower:
    def __init__(self, names: frozenset[str], sees: Sees, changes: Changes) -> None:
        self.names = names
        self.sees = sees
        self._changes = changes
        self._pending: set[str] = set()
        self._woken = asyncio.Event()
        self._told_at = float("-inf")

    def tell(self, name: str) -> None:
        self._pending.add(name)
        self._woken.set()

    async def next(self, timeout_seconds: float) -> list[str]:
        """The names that changed; none if nothing did in time. Changes that follow each other come together."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._woken.wait()
        except TimeoutError:
            return []
        now = time.monotonic()
        await asyncio.sleep(max(DEBOUNCE_SECONDS, self._told_at + self._changes.pause_seconds - now))
        self._told_at = time.monotonic()
        self._woken.clear()
        names, self._pending = sorted(self._pending), set()
        self._changes.listen_again(self, names)
        return names


class Changes(Observer):
    def __init__(self) -> None:
        self._number = 0
        self._last: dict[str, int] = {}
        self._followers: dict[str, set[Follower]] = {}
        self._listening: dict[str, set[Follower]] = {}
        """Those of `_followers` that have not been told since they last took what they were told."""
        self._count = 0

    @property
    def pause_seconds(self) -> float:
        """The least time from one telling of a follower to the next."""
        return self._count / TOLD_PER_SECOND_MAX

    def last(self, names: Iterable[str]) -> int:
        return max((self._last.get(name, 0) for name in names), default=0)

    @contextmanager
    def following(self, names: frozenset[str], sees: Sees) -> Iterator[Follower]:
        follower = Follower(names, sees, self)
        self._count += 1
        for name in names:
            self._followers.setdefault(name, set()).add(follower)
        self.listen_again(follower, names)
        try:
            yield follower
        finally:
            self._count -= 1
            for name in names:
                for table in (self._followers, self._listening):
                    others = table.get(name, set())
                    others.discard(follower)
                    if not others:
                        table.pop(name, None)

    def listen_again(self, follower: Follower, names: Iterable[str]) -> None:
        """Only for `Follower`, which calls it when it has taken these names."""
        for name in names:
            self._listening.setdefault(name, set()).add(follower)

    def note(self, name: str, tenants: Iterable[str] | None = None) -> None:
        """Something of this name changed. `tenants`: whom it concerns; None tells everybody."""
        self._number += 1
        self._last[name] = self._number
        self._tell(name, None if tenants is None else set(tenants))

    def note_all(self) -> None:
        """Another process may have changed anything that somebody follows."""
        self._number += 1
        for name in list(self._followers):
            if ":" not in name:
                self._last[name] = self._number
            self._tell(name, None)

    def _tell(self, name: str, tenants: set[str] | None) -> None:
        listening = self._listening.get(name)
        if not listening:
            return
        told = [
            follower for follower in listening if tenants is None or any(follower.sees(tenant) for tenant in tenants)
        ]
        for follower in told:
            follower.tell(name)
        listening.difference_update(told)

    # --- As an observer ----------------------------------------------------------------------------------------------

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self._number += 1
        self._last["jobs"] = self._number
        if not self._followers:
            return
        if self._listening.get("jobs"):
            self._tell("jobs", {change.after.spec.tenant_id for change in changes})
        for change in changes:
            spec = change.after.spec
            self._tell_job(change.after.job_id, spec.tenant_id)
            if change.before is None and spec.redrive_of is not None:
                self._tell_job(spec.redrive_of, spec.tenant_id)

    def dismissed(self, job_id: str, tenant_id: str) -> None:
        self.note("jobs", {tenant_id})
        self._tell_job(job_id, tenant_id)

    def _tell_job(self, job_id: str, tenant_id: str) -> None:
        """Pieces of a job have its revision as their stamp: without a follower nothing is kept here."""
        name = f"job:{job_id}"
        if name in self._listening:
            self._tell(name, {tenant_id})

    def jobs_pruned(self, removed: int, archived: int) -> None:
        self.note("jobs", EVERY_TENANT)

    def acted(self) -> None:
        self.note("audit", EVERY_TENANT)

    def worker_seen(self) -> None:
        self.note("workers", EVERY_TENANT)

    def operation_changed(self, tenants: Collection[str] | None) -> None:
        self.note("operations", EVERY_TENANT if tenants is None else tenants)

    def batches_changed(self, tenants: Mapping[int, str | None]) -> None:
        self.note("batches", {_concerned(tenant) for tenant in tenants.values()})
        for batch_id, tenant in tenants.items():
            # Pieces of a batch have its own change number as their stamp: without a follower nothing is kept here.
            self._tell(f"batch:{batch_id}", {_concerned(tenant)})

    def runbooks_changed(self, names: Collection[str]) -> None:
        self.note("runbooks", {_concerned(tenant_of_runbook(name)) for name in names})


def _concerned(tenant: str | None) -> str:
    """What belongs to no tenant concerns those who see all."""
    return EVERY_TENANT[0] if tenant is None else tenant
