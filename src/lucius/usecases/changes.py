"""What changed, by name, for those who look: a page learns that something is new, and reads it by itself.

Names are `jobs`, `job:<id>`, `operations`, `runbooks`, `batches` and `batch:<id>`. Nothing but names leaves here, and
only to followers who may see the tenant that the change concerns. `last` is the number of the newest change of a name,
so that what was rendered before it is known to be out of date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from lucius.ports.ledger import Change
from lucius.ports.observer import Observer

DEBOUNCE_SECONDS = 0.25
EVERY_TENANT = ("*",)
"""Concerns tenants that are not known here: only those who see all tenants are told, others look now and then."""
NAMES_MAX = 16
"""Names that one follower may ask for."""

Sees = Callable[[str], bool]


class Follower:
    def __init__(self, names: frozenset[str], sees: Sees) -> None:
        self.names = names
        self.sees = sees
        self._pending: set[str] = set()
        self._woken = asyncio.Event()

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
        await asyncio.sleep(DEBOUNCE_SECONDS)
        self._woken.clear()
        names, self._pending = sorted(self._pending), set()
        return names


class Changes(Observer):
    def __init__(self) -> None:
        self._number = 0
        self._last: dict[str, int] = {}
        self._followers: dict[str, set[Follower]] = {}

    def last(self, names: Iterable[str]) -> int:
        return max((self._last.get(name, 0) for name in names), default=0)

    @contextmanager
    def following(self, names: frozenset[str], sees: Sees) -> Iterator[Follower]:
        follower = Follower(names, sees)
        for name in names:
            self._followers.setdefault(name, set()).add(follower)
        try:
            yield follower
        finally:
            for name in names:
                others = self._followers[name]
                others.discard(follower)
                if not others:
                    del self._followers[name]

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
        for follower in self._followers.get(name, ()):
            if tenants is None or any(follower.sees(tenant) for tenant in tenants):
                follower.tell(name)

    # --- As an observer ----------------------------------------------------------------------------------------------

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self._number += 1
        self._last["jobs"] = self._number
        if not self._followers:
            return
        if "jobs" in self._followers:
            self._tell("jobs", {change.after.spec.tenant_id for change in changes})
        for change in changes:
            name = f"job:{change.after.job_id}"
            if name in self._followers:
                self._tell(name, {change.after.spec.tenant_id})

    def operation_moved(self, operation_id: str, action: str, status: str, sentence: str) -> None:
        self.note("operations", EVERY_TENANT)

    def operation_acted(self, action: str, outcome: str) -> None:
        self.note("operations", EVERY_TENANT)

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        self.note("runbooks", EVERY_TENANT)

    def batches_changed(self, batch_ids: Collection[int]) -> None:
        self.note("batches", EVERY_TENANT)
        for batch_id in batch_ids:
            # Pieces of a batch have its own change number as their stamp: without a follower nothing is kept here.
            self._tell(f"batch:{batch_id}", set(EVERY_TENANT))
