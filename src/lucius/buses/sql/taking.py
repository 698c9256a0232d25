"""How a receiver takes messages from the table: topics take turns, and within a topic its tenants.

If there is no more than the receiver can take, one statement takes it all. Else the messages are read, chosen from and
locked in a transaction.
"""

from __future__ import annotations

from typing import Any

from lucius.buses.sql import statements
from lucius.buses.sql.shares import in_turns, tenants_in_turns, tenants_with_more
from lucius.buses.sql.store import MessageStore, read_properties
from lucius.buses.sql.too_long_waits import TooLongWaits
from lucius.domain.time import Instant, after
from lucius.ports.bus import Delivery, DeliveryRef, Subscription
from lucius.ports.clock import Clock
from lucius.sql.database import Fetch, Row, Run, Script


class Taking:
    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turn = 0
        self._last_tenants: dict[int, str] = {}
        """By subscription: the tenant of the message that this process took last."""
        self._backlogs: set[tuple[frozenset[int], int]] = set()
        """Subscriptions that had more than so many messages when a receiver last asked for them."""
        self._too_long = TooLongWaits(clock)

    async def take(self, by_id: dict[int, Subscription], limit: int, lock_seconds: float) -> list[Delivery]:
        ids = list(by_id)
        too_long = self._too_long.look(ids, lock_seconds)
        if too_long is not None:
            await self._store.write(too_long)
        if not ids:
            return []
        self._turn += 1
        start = self._turn % len(ids)
        order = ids[start:] + ids[:start]
        taken: list[Delivery] = []
        backlog = (frozenset(ids), limit)
        if backlog not in self._backlogs:
            taken, is_all = await self._store.write(lambda: self._take_all_script(order, by_id, limit, lock_seconds))
            if is_all or len(taken) == limit:
                return taken
            self._backlogs.add(backlog)
        elif not await self._store.fetch(statements.IS_ANY_READY, ids, self._clock.now()):
            self._backlogs.discard(backlog)
            return []
        left = limit - len(taken)
        taken += await self._store.write(lambda: self._take_script(order, by_id, left, lock_seconds))
        if len(taken) < limit:
            self._backlogs.discard(backlog)
        return taken

    def _take_all_script(
        self, order: list[int], by_id: dict[int, Subscription], limit: int, lock_seconds: float
    ) -> Script[tuple[list[Delivery], bool]]:
        """Each tenant's share, in one statement, and whether that is all there is. Nothing is taken if it is more than
        `limit`, or if something has to be buried."""
        now = self._clock.now()
        until = after(now, lock_seconds)
        after_tenants = [self._last_tenants.get(id_, "") for id_ in order]
        often = min(subscription.delivery_max for subscription in by_id.values())
        rows = yield Fetch(statements.TAKE_ACROSS, (order, now, limit, after_tenants, until, often), is_alone=True)
        if not all(row[9] for row in rows):
            return [], False
        ready = [tenants_in_turns([row for row in rows if row[5] == id_]) for id_ in order]
        for line in ready:
            if line:
                self._last_tenants[line[-1][5]] = line[-1][6]
        taken = [_delivery(by_id[row[5]], row, until) for row in in_turns(ready)]
        return taken, not tenants_with_more(rows)

    def _take_script(
        self, order: list[int], by_id: dict[int, Subscription], limit: int, lock_seconds: float
    ) -> Script[list[Delivery]]:
        now = self._clock.now()
        until = after(now, lock_seconds)
        after_tenants = [self._last_tenants.get(id_, "") for id_ in order]
        rows = yield Fetch(statements.READY_ACROSS, (order, now, limit, after_tenants))
        ready = {id_: tenants_in_turns([row for row in rows if row[5] == id_]) for id_ in order}
        taken: list[Row] = []
        buried: list[tuple[Any, ...]] = []
        seen: set[int] = set()

        def take(row: Row) -> None:
            subscription = by_id[row[5]]
            if len(taken) >= limit or row[0] in seen:
                return
            seen.add(row[0])
            if row[4] >= subscription.delivery_max:
                buried.append((row[0], now, "DELIVERED_TOO_OFTEN", int(subscription.keeps_dead_bodies)))
            else:
                taken.append(row)
                self._last_tenants[row[5]] = row[6]

        for row in in_turns([ready[id_] for id_ in order]):
            take(row)
        if len(taken) < limit:
            # Some have used up their share, and others have left theirs.
            more = tenants_with_more(rows)
            if more:
                ids, tenants = [id_ for id_, _ in more], [tenant for _, tenant in more]
                for row in (yield Fetch(statements.MORE_OF_TENANTS, (ids, now, limit, tenants))):
                    take(row)
        if buried:
            yield Run(statements.BURY_BY_SEQ, buried)
        if taken:
            yield Run(statements.LOCK, [(row[0], until) for row in taken], in_one_statement=True)
        return [_delivery(by_id[row[5]], row, until) for row in taken]


def _delivery(subscription: Subscription, row: Row, until: Instant) -> Delivery:
    return Delivery(
        ref=DeliveryRef(subscription.topic, subscription.name, row[1]),
        body=bytes(row[2]),
        properties=read_properties(row[3], row[1]),
        delivery_count=row[4] + 1,
        locked_until=until,
    )
