"""The observer port: hooks for logs, metrics and traces, which do nothing by default."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lucius.ports.ledger import Change, Repairs


class Observer:
    """Methods must be quick and must not raise; no argument contains a secret."""

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        """A turn was committed."""

    def command_refused(self, code: str, tenant_id: str | None = None) -> None:
        """`tenant_id` is in normal form; None if the command does not get that far."""

    def callback_answered(self, kind: str, outcome: str) -> None:
        """`kind` is ACK, RESULT or HEARTBEAT; `outcome` the answer, or FORGED."""

    def reply_refused(self, code: str) -> None:
        """A message on a reply topic is malformed or forged, and a dead letter now."""

    def dispatched(self, count: int, lag_seconds: float) -> None:
        """A bus outside the ledger's database took directives; the oldest attempt was this old."""

    def circuit_changed(self, is_open: bool, reason: str) -> None: ...

    def swept(self, kind: str, count: int) -> None:
        """A sweep found something due: `deadline`, `undispatched`, or `lost_message` (of runbooks)."""

    def repaired(self, repairs: Repairs) -> None: ...

    def webhook_called(self, outcome: str) -> None:
        """`delivered`, `failed` (to be tried again) or `given_up`."""

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        """Steps of a runbook reached this status."""

    def batches_changed(self, batch_ids: Collection[int]) -> None:
        """A committed turn has changed something about these batches of runbooks."""

    def worker_answered(self, outcome: str) -> None:
        """A runbook worker's result was answered: APPLIED, DUPLICATE, STALE, UNKNOWN or FORGED."""

    def ticked(self, outcome: str, seconds: float) -> None:
        """A round of the scheduler ended: `ok`, `failed`, or `not_leader`."""

    def source_read(self, outcome: str, seconds: float) -> None:
        """A runbook's data source was read: `ok`, `held` or `failed`."""

    def source_troubled(self, runbook: str, state: str, reason: str) -> None:
        """A runbook's source is `failed` or `held`; told at each reading that finds it so."""

    def waits_held(self, kind: str, count: int) -> None:
        """The number of calls of this kind (`wait` or `stream`) that are held open now."""

    def wait_refused(self, kind: str, scope: str) -> None:
        """A call was not held open: too many are, of one `principal` or in total (`all`)."""

    def operation_moved(self, operation_id: str, action: str, status: str, sentence: str) -> None:
        """A bulk operation reached this state."""

    def operation_acted(self, action: str, outcome: str) -> None:
        """A bulk operation acted on a job, or saw its new job end."""

    def failed(self, what: str, error: BaseException) -> None:
        """Something failed that no caller waits for."""

    def loop_failed(self, name: str, error: BaseException) -> None:
        """A round of a loop failed; the next one tries again."""
        self.failed(name, error)

    def loop_worked(self, name: str) -> None:
        """A round of a loop succeeded."""


class Observers(Observer):
    """Calls several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def turn_done(self, inputs: int, seconds: float, changes: Sequence[Change]) -> None:
        for observer in self._observers:
            observer.turn_done(inputs, seconds, changes)

    def command_refused(self, code: str, tenant_id: str | None = None) -> None:
        for observer in self._observers:
            observer.command_refused(code, tenant_id)

    def callback_answered(self, kind: str, outcome: str) -> None:
        for observer in self._observers:
            observer.callback_answered(kind, outcome)

    def reply_refused(self, code: str) -> None:
        for observer in self._observers:
            observer.reply_refused(code)

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

    def loop_failed(self, name: str, error: BaseException) -> None:
        for observer in self._observers:
            observer.loop_failed(name, error)

    def loop_worked(self, name: str) -> None:
        for observer in self._observers:
            observer.loop_worked(name)

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        for observer in self._observers:
            observer.steps_moved(status, count, runbook)

    def batches_changed(self, batch_ids: Collection[int]) -> None:
        for observer in self._observers:
            observer.batches_changed(batch_ids)

    def worker_answered(self, outcome: str) -> None:
        for observer in self._observers:
            observer.worker_answered(outcome)

    def ticked(self, outcome: str, seconds: float) -> None:
        for observer in self._observers:
            observer.ticked(outcome, seconds)

    def source_read(self, outcome: str, seconds: float) -> None:
        for observer in self._observers:
            observer.source_read(outcome, seconds)

    def source_troubled(self, runbook: str, state: str, reason: str) -> None:
        for observer in self._observers:
            observer.source_troubled(runbook, state, reason)

    def waits_held(self, kind: str, count: int) -> None:
        for observer in self._observers:
            observer.waits_held(kind, count)

    def wait_refused(self, kind: str, scope: str) -> None:
        for observer in self._observers:
            observer.wait_refused(kind, scope)

    def operation_moved(self, operation_id: str, action: str, status: str, sentence: str) -> None:
        for observer in self._observers:
            observer.operation_moved(operation_id, action, status, sentence)

    def operation_acted(self, action: str, outcome: str) -> None:
        for observer in self._observers:
            observer.operation_acted(action, outcome)
