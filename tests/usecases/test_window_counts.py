"""Sums that are kept for a minute say the same as sums that are made anew."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.time import Instant, after
from lucius.ledgers.memory import MemoryLedger
from lucius.testing.ledger_driver import LedgerDriver
from lucius.testing.samples import ManualClock
from lucius.usecases.window_counts import WindowCounts

DAY = 86_400


class CountedLedger(MemoryLedger):
    """Notes how far back it was asked to look."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Instant] = []

    async def counts(self, since: Instant, tenants: Sequence[str] | None) -> dict[str, int]:
        self.asked.append(since)
        return await super().counts(since, tenants)


async def test_window_is_added_up_once_a_minute_and_is_right_in_between() -> None:
    clock, ledger = ManualClock(), CountedLedger()
    driver, counts = LedgerDriver(ledger, clock), WindowCounts(ledger, clock)
    for seconds in (0, 20, 20, 15, 10, 70, 3_600):
        clock.advance(seconds)
        await driver.succeed(await driver.create(tenant_id="acme"))
        await driver.create(tenant_id="globex")
        for tenants in (None, ("acme",), ("nobody",)):
            exact = await MemoryLedger.counts(ledger, after(clock.now(), -DAY), tenants)
            assert await counts.of(DAY, tenants) == exact
    whole = [since for since in ledger.asked if since <= after(clock.now(), -DAY + 3_800)]
    assert len(whole) == 4 * 3, "seven times shown to three, and made anew after a minute, a minute and an hour"


async def test_what_is_older_than_the_window_is_left_out_after_a_minute() -> None:
    clock, ledger = ManualClock(), CountedLedger()
    driver, counts = LedgerDriver(ledger, clock), WindowCounts(ledger, clock)
    await driver.create(tenant_id="acme")
    assert await counts.of(DAY, None) == {"ACCEPTED": 1}
    clock.advance(DAY + 120)
    await driver.create(tenant_id="acme")
    assert await counts.of(DAY, None) == {"ACCEPTED": 1}
