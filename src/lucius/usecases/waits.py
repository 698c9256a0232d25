"""Calls that are held open: long polls, waits for a job, and streams.

Each occupies a connection, and a server's connections are limited. So held calls are capped per principal and in total,
separately in each process, and a fifth of the connections is always left for calls that are answered at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType

from msgspec import Struct

from lucius.domain.errors import CallerError
from lucius.ports.observer import Observer

RETRY_AFTER_SECONDS = 5.0
HELD_SHARE_MAX = 0.8
"""Share of all connections that held calls may occupy."""


class WaitKind(StrEnum):
    WAIT = "wait"
    """A long poll, or a wait for a job to end: at most a minute."""
    STREAM = "stream"
    """An event stream or a download: as long as it lasts."""


class WaitCap(Struct, frozen=True, kw_only=True):
    per_principal: int
    in_all: int


class Slot:
    """The slot of one held call; `release` may be called more than once."""

    def __init__(self, waits: Waits, kind: WaitKind, principal: str) -> None:
        self._waits: Waits | None = waits
        self._kind = kind
        self._principal = principal

    def release(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.release(self._kind, self._principal)

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Waits:
    def __init__(self, caps: Mapping[WaitKind, WaitCap], connections_max: int, observer: Observer) -> None:
        self._caps = caps
        self.limit_connections(connections_max)
        self._observer = observer
        self._by_principal: Counter[tuple[WaitKind, str]] = Counter()
        self.held: dict[WaitKind, int] = dict.fromkeys(WaitKind, 0)

    def limit_connections(self, connections_max: int) -> None:
        self._held_max = int(connections_max * HELD_SHARE_MAX)

    def take(self, kind: WaitKind, principal: str) -> Slot:
        """A slot for one call of this principal. Raises `CallerError` (WAITS_SATURATED) if none is free."""
        cap, count, total = self._caps[kind], self._by_principal[kind, principal], self.held[kind]
        if count >= cap.per_principal:
            detail = f"this caller has {count} {kind}s open, the maximum; close some, or retry without waiting"
            raise self._refusal(kind, "principal", detail)
        if total >= cap.in_all or sum(self.held.values()) >= self._held_max:
            detail = f"this server holds {total} {kind}s open, the maximum; retry later, or without waiting"
            raise self._refusal(kind, "all", detail)
        self._count(kind, principal, 1)
        return Slot(self, kind, principal)

    def release(self, kind: WaitKind, principal: str) -> None:
        """Only for `Slot`, which calls it once."""
        self._count(kind, principal, -1)
        if not self._by_principal[kind, principal]:
            del self._by_principal[kind, principal]

    def _count(self, kind: WaitKind, principal: str, change: int) -> None:
        self._by_principal[kind, principal] += change
        self.held[kind] += change
        self._observer.waits_held(kind, self.held[kind])

    def _refusal(self, kind: WaitKind, scope: str, detail: str) -> CallerError:
        self._observer.wait_refused(kind, scope)
        return CallerError.of("WAITS_SATURATED", detail, retry_after_seconds=RETRY_AFTER_SECONDS)
