"""The observer port: few hooks, all doing nothing unless somebody listens. Logs, metrics and traces hang on it."""

from __future__ import annotations

from collections.abc import Sequence

from lucius.ports.ledger import Change, Repairs


class Observer:
    """Methods must be quick and must not raise; none of them is told anything secret."""

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        """A turn was committed."""

    def command_refused(self, code: str) -> None: ...

    def callback_answered(self, kind: str, outcome: str) -> None:
        """`kind` is ACK, RESULT or HEARTBEAT; `outcome` the answer, or FORGED."""

    def dispatched(self, count: int, lag_seconds: float) -> None:
        """A bus outside the ledger's database took directives, the oldest so long after its attempt was made."""

    def circuit_changed(self, is_open: bool, reason: str) -> None: ...

    def swept(self, kind: str, count: int) -> None:
        """The sweeper did something: `deadline` or `undispatched`."""

    def repaired(self, repairs: Repairs) -> None: ...

    def webhook_called(self, outcome: str) -> None:
        """`delivered`, `failed` (to be tried again) or `given_up`."""

    def steps_moved(self, status: str, count: int) -> None:
        """Steps of runbooks came to this status."""

    def worker_answered(self, outcome: str) -> None:
        """A runbook worker's result was taken: APPLIED, DUPLICATE, STALE or UNKNOWN."""

    def ticked(self, outcome: str, seconds: float) -> None:
        """The scheduler went round: `ok`, `failed`, or `not_leader`."""

    def source_read(self, outcome: str, seconds: float) -> None:
        """A runbook's data source was read: `ok`, `held` or `failed`."""

    def failed(self, what: str, error: BaseException) -> None:
        """Something went wrong that nobody waits for an answer to."""


class Observers(Observer):
    """Tells several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        for observer in self._observers:
            observer.turn_done(inputs, seconds, changes)

    def command_refused(self, code: str) -> None:
        for observer in self._observers:
            observer.command_refused(code)

    def callback_answered(self, kind: str, outcome: str) -> None:
        for observer in self._observers:
            observer.callback_answered(kind, outcome)

    def dispatched(self, count: int, lag_seconds: float) -> None:
        for observer in self._observers:
            observer.dispatched(count, lag_seconds)

    def circuit_changed(self, is_open: bool, reason: str) -> None:
        for observer in self._observers:
            observer.circuit_changed(is_open, reason)

    def swept(self, kind: str, count: int) -> None:
        for observer in self._observers:
            observer.swept(kind, count)

    def repaired(self, repairs: Repairs) -> None:
        for observer in self._observers:
            observer.repaired(repairs)

    def webhook_called(self, outcome: str) -> None:
        for observer in self._observers:
            observer.webhook_called(outcome)

    def failed(self, what: str, error: BaseException) -> None:
        for observer in self._observers:
            observer.failed(what, error)

    def steps_moved(self, status: str, count: int) -> None:
        for observer in self._observers:
            observer.steps_moved(status, count)

    def worker_answered(self, outcome: str) -> None:
        for observer in self._observers:
            observer.worker_answered(outcome)

    def ticked(self, outcome: str, seconds: float) -> None:
        for observer in self._observers:
            observer.ticked(outcome, seconds)

    def source_read(self, outcome: str, seconds: float) -> None:
        for observer in self._observers:
            observer.source_read(outcome, seconds)
