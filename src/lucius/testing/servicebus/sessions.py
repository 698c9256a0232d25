"""The sessions of one queue: who holds which, until when, and the state each carries. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from lucius.testing.servicebus.refusals import (
    argument_error,
    session_cannot_be_locked,
    session_lock_lost,
)

STATE_BYTES_MAX = 262_144


@dataclass(slots=True)
class SessionLock:
    owner: object
    until: float


class Sessions:
    def __init__(self, lock_seconds: float) -> None:
        self.lock_seconds = lock_seconds
        self._locks: dict[str, SessionLock] = {}
        self._states: dict[str, bytes] = {}

    def lock(self, session_id: str, owner: object, now: float) -> float:
        if self.is_locked(session_id, now):
            raise session_cannot_be_locked(session_id)
        self._locks[session_id] = SessionLock(owner, now + self.lock_seconds)
        return now + self.lock_seconds

    def is_locked(self, session_id: str, now: float) -> bool:
        held = self._locks.get(session_id)
        return held is not None and held.until > now

    def locked_until(self, session_id: str, now: float) -> float:
        held = self._locks.get(session_id)
        if held is None or held.until <= now:
            raise session_lock_lost(session_id)
        return held.until

    def holds(self, session_id: str, owner: object, now: float) -> bool:
        held = self._locks.get(session_id)
        return held is not None and held.owner is owner and held.until > now

    def renew(self, session_id: str, now: float) -> float:
        self.locked_until(session_id, now)
        until = now + self.lock_seconds
        self._locks[session_id].until = until
        return until

    def release(self, session_id: str, owner: object) -> bool:
        """Whether this owner held it."""
        held = self._locks.get(session_id)
        if held is None or held.owner is not owner:
            return False
        del self._locks[session_id]
        return True

    def take_expired(self, now: float) -> list[tuple[str, object]]:
        expired = [(session_id, held.owner) for session_id, held in self._locks.items() if held.until <= now]
        for session_id, _ in expired:
            del self._locks[session_id]
        return expired

    def take_all(self) -> list[tuple[str, object]]:
        return self.take_expired(float("inf"))

    def state(self, session_id: str) -> bytes | None:
        return self._states.get(session_id)

    def set_state(self, session_id: str, state: bytes | None) -> None:
        if state is None:
            self._states.pop(session_id, None)
        elif len(state) > STATE_BYTES_MAX:
            raise argument_error(f"A session's state has at most {STATE_BYTES_MAX} bytes, not {len(state)}.")
        else:
            self._states[session_id] = state

    def with_state(self) -> list[str]:
        return list(self._states)
