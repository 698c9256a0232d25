"""The observer port: hooks for logs, metrics and traces, which do nothing by default."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

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

    def notification_sent(self, kind: str, outcome: str) -> None:
        """`delivered`, `failed` (to be tried again) or `given_up`, to a recipient of this kind."""

    def dismissed(self, job_id: str, tenant_id: str) -> None:
        """Somebody took a job off the list of dead letters."""

    def acted(self) -> None:
        """Somebody did something that concerns no tenant in particular, such as pruning; the audit list has it."""

    def worker_seen(self) -> None:
        """An instance of a service or function worker asked for work, showed that it works, or failed: told many times
        a second."""

    def jobs_pruned(self, removed: int, archived: int) -> None:
        """A slice of old jobs was removed, and archived before if there is an archive."""

    def steps_moved(self, status: str, count: int, runbook: str = "") -> None:
        """Steps of a runbook reached this status."""

    def batches_changed(self, tenants: Mapping[int, str | None]) -> None:
        """A committed turn has changed something about these batches of runbooks: the tenant of each, or None."""

    def runbooks_changed(self, names: Collection[str]) -> None:
        """A committed turn has changed something about these runbooks besides their batches: a version, automation,
        what is known of the source."""

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

    def operation_changed(self, tenants: Collection[str] | None) -> None:
        """A bulk operation on jobs of these tenants was created or steered, or got on. None: of all tenants."""

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
    """Calls several observers, each only for the hooks that do something there: some are called many times per job."""

    def __init__(self, *observers: Observer) -> None:
        for name, default in vars(Observer).items():
            if not name.startswith("_"):
                told = [one for one in observers if getattr(type(one), name) is not default or name in _DEFAULTS]
                hooks = [getattr(one, name) for one in told]
                setattr(self, name, hooks[0] if len(hooks) == 1 else _call_all(hooks))


_DEFAULTS = ("loop_failed",)
"""Hooks that do something even where an observer does not define them."""


def _call_all(hooks: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any, **named: Any) -> None:
        for hook in hooks:
            hook(*args, **named)

    return call
