"""Conformance suite for ledgers.

Subclass `LedgerSuite` in a test module and provide two fixtures: `ledger`, open and empty, and `clock`, a
`ManualClock`. Override the hooks of `LedgerUpkeep`, and the flag of `LedgerLimits` if it does not apply. A ledger that
shares its transactions with a bus must pass `EnlistingSuite` as well.
"""

from __future__ import annotations

from lucius.domain.inputs import PauseAsked
from lucius.ports.bus import Bus, DeliveryRef, Message, Subscription
from lucius.ports.ledger import Change, Committed, Conflict, Ledger, Saturated
from lucius.testing.ledger_dead_letters import LedgerDeadLetters
from lucius.testing.ledger_driver import LedgerDriver, heartbeat
from lucius.testing.ledger_figures import LedgerFigures
from lucius.testing.ledger_holders import LedgerHolders
from lucius.testing.ledger_limits import LedgerLimits
from lucius.testing.ledger_reading import LedgerReading
from lucius.testing.ledger_search import LedgerSearch
from lucius.testing.ledger_upkeep import LedgerUpkeep
from lucius.testing.ledger_writing import LedgerWriting
from lucius.testing.samples import ManualClock, tenant_limit

__all__ = ["EnlistingSuite", "LedgerSuite"]


class LedgerSuite(
    LedgerWriting,
    LedgerLimits,
    LedgerReading,
    LedgerUpkeep,
    LedgerHolders,
    LedgerDeadLetters,
    LedgerFigures,
    LedgerSearch,
):
    """Everything that the ledger port guarantees."""


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
        driver = LedgerDriver(ledger, clock)
        change = await self._publishing(bus, driver.creation(), "m1", "m2")
        assert await ledger.commit([change]) == [Committed()]
        assert await self._received(bus) == ["m1", "m2"]

    async def test_commit_publishes_nothing_of_a_change_that_falls(
        self, ledger: Ledger, bus: Bus, clock: ManualClock
    ) -> None:
        driver = LedgerDriver(ledger, clock)
        limit = tenant_limit(1)
        job = await driver.create(limits=(limit,))
        stale = await self._publishing(bus, driver.change(job, PauseAsked("late")), "of the conflict")
        job = await driver.tell(job, heartbeat(job, 0.5))
        full = await self._publishing(bus, driver.creation(limits=(limit,)), "of the saturated")
        committed = await self._publishing(bus, driver.change(job, PauseAsked("operator")), "of the committed change")
        assert await ledger.commit([stale]) == [Conflict()]
        assert await ledger.commit([full, committed]) == [Saturated(limit), Committed()]
        assert await self._received(bus) == ["of the committed change"]

    async def test_commit_settles_in_the_same_transaction(self, ledger: Ledger, bus: Bus, clock: ManualClock) -> None:
        driver = LedgerDriver(ledger, clock)
        job = await driver.write(await self._publishing(bus, driver.creation(), "m1"))
        ref = DeliveryRef("lane", "ocr", "m1")
        plain = driver.change(job, heartbeat(job, 0.5))
        change = Change(before=plain.before, after=plain.after, events=plain.events, settled=(ref, ref))
        assert await ledger.commit([change]) == [Committed()]
        assert await self._received(bus) == []
        assert await bus.still_queued([ref]) == set()
