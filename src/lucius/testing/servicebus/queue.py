"""One queue, subscription or dead-letter queue: what is in it, what is locked, and what becomes of it.

Pure: time is an argument, nothing waits, nothing is sent. The delivery count rises with every lock and falls again if
the receiver releases the message unread, so that what the wire calls delivery-count is the number of earlier tries.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from uuid import UUID, uuid4

from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.refusals import message_lock_lost, message_not_found
from lucius.testing.servicebus.sessions import Sessions
from lucius.testing.servicebus.settings import SECONDS_MAX, QueueSettings
from lucius.testing.servicebus.stored import Outcome, Stored

PEEK_MESSAGES_MAX = 250


class MessageQueue:
    def __init__(self, path: str, settings: QueueSettings, dead_letters: MessageQueue | None = None) -> None:
        self.path = path
        self.settings = settings
        self.dead_letters = dead_letters
        """None for a dead-letter queue itself."""
        self.sessions = Sessions(settings.lock_seconds)
        self.size_bytes = 0
        self._stored: dict[int, Stored] = {}
        self._last_number = 0
        self._active: dict[str, list[int]] = defaultdict(list)
        """Heaps of sequence numbers by session, or one for all. May name messages that are active no longer."""
        self._locked: dict[UUID, Stored] = {}
        self._events: list[tuple[float, int]] = []
        """When to look at which message again: a lock, a time to live or a schedule ends."""

    # --- In ----------------------------------------------------------------------------------------------------------

    def put(
        self,
        message: Message,
        now: float,
        due_at: float | None = None,
        ttl_seconds: float = SECONDS_MAX,
        delivery_count: int = 0,
    ) -> int:
        """Adds a message, active at once or at `due_at`. The shortest time to live counts."""
        own = SECONDS_MAX if message.ttl_ms is None else message.ttl_ms / 1000
        # Nothing expires in a dead-letter queue.
        ttl = SECONDS_MAX if self.dead_letters is None else min(own, ttl_seconds, self.settings.ttl_seconds)
        starts_at = now if due_at is None else due_at
        self._last_number += 1
        stored = Stored(message, self._last_number, starts_at, starts_at + ttl, message.size, due_at)
        stored.delivery_count = delivery_count
        self._stored[stored.sequence_number] = stored
        self.size_bytes += stored.size
        if due_at is None:
            self._activate(stored)
        else:
            self._watch(due_at, stored)
        return stored.sequence_number

    def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            stored = self._stored.get(number)
            if stored is None or stored.due_at is None:
                raise message_not_found(number)
        for number in numbers:
            self._remove(self._stored[number])

    # --- Out ---------------------------------------------------------------------------------------------------------

    def take(self, now: float, session_id: str | None = None, deletes: bool = False) -> Stored | None:
        """The next active message, locked or, if it `deletes`, removed."""
        heap = self._active.get(session_id or "")
        while heap:
            stored = self._stored.get(heapq.heappop(heap))
            if stored is None or not stored.is_active:
                continue
            if stored.expires_at <= now:
                self._expire(stored, now)
                continue
            self._hand_out(stored, now, session_id, deletes)
            return stored
        return None

    def receive_deferred(
        self, numbers: Sequence[int], now: float, session_id: str | None = None, deletes: bool = False
    ) -> list[Stored]:
        found = []
        for number in numbers:
            stored = self._stored.get(number)
            if stored is None or not stored.is_deferred or stored.token is not None:
                raise message_not_found(number)
            if self.settings.requires_session and stored.message.session_id != session_id:
                raise message_not_found(number)
            found.append(stored)
        for stored in found:
            self._hand_out(stored, now, session_id, deletes)
        return found

    def settle(
        self,
        token: UUID,
        outcome: Outcome,
        now: float,
        changes: Message | None = None,
        reason: tuple[str, str] = ("", ""),
    ) -> None:
        """Ends a lock; `changes` is the message as the receiver wants it kept, `reason` is for dead letters."""
        stored = self._held(token, now)
        self._unlock(stored)
        if changes is not None:
            stored.message = changes
        if outcome is Outcome.COMPLETE:
            self._remove(stored)
        elif outcome is Outcome.DEAD_LETTER:
            self._bury(stored, *reason, now)
        elif outcome is Outcome.DEFER:
            stored.is_deferred = True
        elif outcome is Outcome.RELEASE:
            stored.delivery_count -= 1
            self._activate(stored)
        else:
            self._give_back(stored, now)

    def renew(self, tokens: Sequence[UUID], now: float) -> list[float]:
        held = [self._held(token, now) for token in tokens]
        until = now + self.settings.lock_seconds
        for stored in held:
            if stored.locked_until is not None:
                stored.locked_until = until
                self._watch(until, stored)
        return [until] * len(held)

    def locked(self, token: UUID) -> Stored | None:
        return self._locked.get(token)

    # --- Sessions ----------------------------------------------------------------------------------------------------

    def next_session(self, now: float) -> str | None:
        """The unlocked session whose active message is the oldest."""
        self._active = defaultdict(list, {key: heap for key, heap in self._active.items() if heap})
        candidates = [
            (number, session_id)
            for session_id in self._active
            if not self.sessions.is_locked(session_id, now) and (number := self._first(session_id, now)) is not None
        ]
        return min(candidates)[1] if candidates else None

    def session_ids(self) -> list[str]:
        """Sessions with messages or a state."""
        with_messages = {stored.message.session_id or "" for stored in self._stored.values()}
        return sorted(with_messages | set(self.sessions.with_state()))

    def release_session(self, session_id: str, owner: object, now: float) -> None:
        if self.sessions.release(session_id, owner):
            self._give_back_session(session_id, now)

    def set_session_state(self, session_id: str, state: bytes | None, now: float) -> None:
        self.sessions.locked_until(session_id, now)
        self.sessions.set_state(session_id, state)

    # --- Time --------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[object]:
        """Locks, schedules and lives that are over by now; returns the owners of the sessions that were lost."""
        while self._events and self._events[0][0] <= now:
            stored = self._stored.get(heapq.heappop(self._events)[1])
            if stored is not None:
                self._look_at(stored, now)
        lost = self.sessions.take_expired(now)
        for session_id, _ in lost:
            self._give_back_session(session_id, now)
        return [owner for _, owner in lost]

    def lose_locks(self, now: float) -> list[object]:
        """As if every lock had run out at this moment."""
        for stored in list(self._locked.values()):
            if stored.locked_until is not None:
                self._unlock(stored)
                self._give_back(stored, now)
        lost = self.sessions.take_all()
        for session_id, _ in lost:
            self._give_back_session(session_id, now)
        return [owner for _, owner in lost]

    def clear(self) -> None:
        """Without a trace: locks and numbers included."""
        for stored in list(self._stored.values()):
            self._unlock(stored)
            self._remove(stored)

    # --- Looking -----------------------------------------------------------------------------------------------------

    def peek(self, from_number: int, count: int, now: float, session_id: str | None = None) -> list[Stored]:
        found: list[Stored] = []
        for stored in self._stored.values():
            if len(found) == min(count, PEEK_MESSAGES_MAX):
                break
            if stored.sequence_number < from_number or (stored.expires_at <= now and stored.token is None):
                continue
            if session_id is None or stored.message.session_id == session_id:
                found.append(stored)
        return found

    def counts(self) -> dict[str, int]:
        scheduled = sum(stored.due_at is not None for stored in self._stored.values())
        return {"active": len(self._stored) - scheduled, "scheduled": scheduled, "locked": len(self._locked)}

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[Stored]:
        return iter(list(self._stored.values()))

    # --- Inside ------------------------------------------------------------------------------------------------------

    def _key(self, stored: Stored) -> str:
        return (stored.message.session_id or "") if self.settings.requires_session else ""

    def _activate(self, stored: Stored) -> None:
        heapq.heappush(self._active[self._key(stored)], stored.sequence_number)
        if stored.expires_at < SECONDS_MAX:
            self._watch(stored.expires_at, stored)

    def _watch(self, at: float, stored: Stored) -> None:
        heapq.heappush(self._events, (at, stored.sequence_number))

    def _look_at(self, stored: Stored, now: float) -> None:
        if stored.due_at is not None:
            if stored.due_at <= now:
                # An activated message is a new one at the end of the queue, with a number of its own.
                self._remove(stored)
                self.put(stored.message, stored.due_at, ttl_seconds=stored.expires_at - stored.due_at)
        elif stored.token is not None:
            if stored.locked_until is not None and stored.locked_until <= now:
                self._unlock(stored)
                self._give_back(stored, now)
        elif stored.expires_at <= now:
            self._expire(stored, now)

    def _hand_out(self, stored: Stored, now: float, session_id: str | None, deletes: bool) -> None:
        if deletes:
            self._remove(stored)
            return
        stored.token = uuid4()
        stored.delivery_count += 1
        self._locked[stored.token] = stored
        if not self.settings.requires_session:
            stored.locked_until = now + self.settings.lock_seconds
            self._watch(stored.locked_until, stored)

    def _held(self, token: UUID, now: float) -> Stored:
        stored = self._locked.get(token)
        if stored is None:
            raise message_lock_lost()
        if stored.locked_until is None:
            self.sessions.locked_until(stored.message.session_id or "", now)
        elif stored.locked_until <= now:
            raise message_lock_lost()
        return stored

    def _unlock(self, stored: Stored) -> None:
        if stored.token is not None:
            del self._locked[stored.token]
        stored.token = stored.locked_until = None

    def _give_back(self, stored: Stored, now: float) -> None:
        if self.dead_letters is not None and stored.delivery_count >= self.settings.max_delivery_count:
            tries = self.settings.max_delivery_count
            reason = f"Message could not be consumed after {tries} delivery attempts."
            self._bury(stored, "MaxDeliveryCountExceeded", reason, now)
        elif not stored.is_deferred:
            self._activate(stored)

    def _give_back_session(self, session_id: str, now: float) -> None:
        for stored in [one for one in self._locked.values() if one.message.session_id == session_id]:
            self._unlock(stored)
            self._give_back(stored, now)

    def _bury(self, stored: Stored, reason: str, description: str, now: float) -> None:
        told = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
        message = stored.message.with_application_properties(told)
        if self.dead_letters is None:
            stored.message = message
            self._activate(stored)
            return
        self._remove(stored)
        buried = message.with_annotations({"x-opt-deadletter-source": self.path})
        self.dead_letters.put(buried, now, delivery_count=stored.delivery_count)

    def _expire(self, stored: Stored, now: float) -> None:
        if self.dead_letters is not None and self.settings.dead_letters_expired:
            self._bury(stored, "TTLExpiredException", "The message expired and was dead lettered.", now)
        else:
            self._remove(stored)

    def _remove(self, stored: Stored) -> None:
        del self._stored[stored.sequence_number]
        self.size_bytes -= stored.size

    def _first(self, session_id: str, now: float) -> int | None:
        heap = self._active[session_id]
        while heap:
            stored = self._stored.get(heap[0])
            if stored is not None and stored.is_active and stored.expires_at > now:
                return heap[0]
            heapq.heappop(heap)
        return None
