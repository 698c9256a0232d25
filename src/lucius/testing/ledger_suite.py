"""What every ledger must do.

Subclass `LedgerSuite` in a test module and supply two fixtures: `ledger`, an open and empty one, and `clock`, a
`ManualClock`. Override the hooks of `LedgerUpkeep`, and the flag of `LedgerLimits` where it does not hold. A ledger
that shares its transactions with a bus proves that with `EnlistingSuite` as well.
"""

from __future__ import annotations

from lucius.domain.inputs import PauseAsked
from lucius.ports.bus import Bus, DeliveryRef, Message, Subscription
from lucius.ports.ledger import Change, Committed, Conflict, Ledger, Saturated
from lucius.testing.ledger_limits import LedgerLimits
from lucius.testing.ledger_reading import LedgerReading
from lucius.testing.ledger_upkeep import LedgerUpkeep
from lucius.testing.ledger_writing import LedgerWriting
from lucius.testing.samples import ManualClock, tenant_limit
from lucius.testing.scribe import Scribe, heartbeat

__all__ = ["EnlistingSuite", "LedgerSuite"]


class LedgerSuite(LedgerWriting, LedgerLimits, LedgerReading, LedgerUpkeep):
    """Everything the ledger port promises."""


class EnlistingSuite:
    """For a ledger and a bus in one database. Fixtures: `ledger`, `bus`, `clock`."""

    async def _publishing(self, bus: Bus, change: Change, *ids: str) -> Change:
        await bus.declare([Subscription(topic="lane", name="ocr")])
        messages = tuple(Message(id=name, topic="lane", body=name.encode(), properties={}) for name in ids)
        return Change(
            before=change.before,
            after=change.after,
            events=change.events,
            claim=change.claim,
            limits=change.limits,
            messages=messages,
        )

    async def _received(self, bus: Bus) -> list[str]:
        return [each.ref.message_id for each in await bus.receive(["lane"], "ocr", 10, 30.0, 0.0)]

    async def test_ledger_enlists_its_bus(self, ledger: Ledger, bus: Bus) -> None:
        assert ledger.enlists(bus)

    async def test_commit_publishes_the_messages_of_a_change(
        self, ledger: Ledger, bus: Bus, clock: ManualClock
    ) -> None:
        scribe = Scribe(ledger, clock)
        change = await self._publishing(bus, scribe.creation(), "m1", "m2")
        assert await ledger.commit([change]) == [Committed()]
        assert await self._received(bus) == ["m1", "m2"]

    async def test_commit_publishes_nothing_of_a_change_that_falls(
        self, ledger: Ledger, bus: Bus, clock: ManualClock
    ) -> None:
        scribe = Scribe(ledger, clock)
        limit = tenant_limit(1)
        job = await scribe.create(limits=(limit,))
        stale = await self._publishing(bus, scribe.change(job, PauseAsked("late")), "of the conflict")
        job = await scribe.tell(job, heartbeat(job, 0.5))
        full = await self._publishing(bus, scribe.creation(limits=(limit,)), "of the saturated")
        stands = await self._publishing(bus, scribe.change(job, PauseAsked("operator")), "of the one that stands")
        assert await ledger.commit([stale]) == [Conflict()]
        assert await ledger.commit([full, stands]) == [Saturated(limit), Committed()]
        assert await self._received(bus) == ["of the one that stands"]

    async def test_commit_settles_in_the_same_transaction(self, ledger: Ledger, bus: Bus, clock: ManualClock) -> None:
        scribe = Scribe(ledger, clock)
        job = await scribe.write(await self._publishing(bus, scribe.creation(), "m1"))
        ref = DeliveryRef("lane", "ocr", "m1")
        plain = scribe.change(job, heartbeat(job, 0.5))
        change = Change(before=plain.before, after=plain.after, events=plain.events, settled=(ref, ref))
        assert await ledger.commit([change]) == [Committed()]
        assert await self._received(bus) == []
        assert await bus.still_queued([ref]) == set()
