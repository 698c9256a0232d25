"""Bulk operations: one action on every job that matches a filter, as a machine of its own.

The jobs are recorded first (SELECTING), so that the number is exact and each is acted on once. Then the canary, then
the rest, then the ends of the jobs that were started. Where an operation stands follows from its counts: `settled` can
be called any number of times.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from lucius.domain.job import JobStatus
from lucius.domain.time import Instant

EVENTS_MAX = 100
"""Of an operation's own trail; the oldest but the first are dropped."""


class BulkAction(StrEnum):
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    REDRIVE = "redrive"


APPLIES_TO: dict[BulkAction, tuple[JobStatus, ...]] = {
    BulkAction.CANCEL: (JobStatus.QUEUED, JobStatus.DISPATCHING, JobStatus.IN_PROGRESS, JobStatus.PAUSED),
    BulkAction.PAUSE: (JobStatus.QUEUED, JobStatus.DISPATCHING, JobStatus.IN_PROGRESS),
    BulkAction.RESUME: (JobStatus.PAUSED,),
    BulkAction.REDRIVE: (JobStatus.FAILED_FINAL, JobStatus.CANCELLED),
}
UNLESS_NAMED: dict[BulkAction, tuple[JobStatus, ...]] = {
    **APPLIES_TO,
    # What somebody cancelled was cancelled on purpose: it is redriven only if the filter says so.
    BulkAction.REDRIVE: (JobStatus.FAILED_FINAL,),
}
"""The jobs that an action selects if its filter has no status."""


class BulkStatus(StrEnum):
    SELECTING = "SELECTING"
    CANARY = "CANARY"
    RUNNING = "RUNNING"
    FINISHING = "FINISHING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    ABANDONED = "ABANDONED"


class BulkMove(StrEnum):
    """What can happen to an operation."""

    SELECTED = "SELECTED"  # every job that matches is recorded
    CANARY_PASSED = "CANARY_PASSED"  # the outcomes of the first jobs are known, and few enough failed
    ACTED = "ACTED"  # every job was acted on
    ENDED = "ENDED"  # every outcome is known
    FAILED = "FAILED"  # too many jobs failed
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"  # from the beginning; the moves up to where it was follow at once
    ABANDONED = "ABANDONED"


S, M = BulkStatus, BulkMove

BULK_TRANSITIONS: dict[tuple[BulkStatus, BulkMove], BulkStatus] = {
    (S.SELECTING, M.SELECTED): S.CANARY,
    (S.SELECTING, M.PAUSED): S.PAUSED,
    (S.SELECTING, M.ABANDONED): S.ABANDONED,
    (S.CANARY, M.CANARY_PASSED): S.RUNNING,
    (S.CANARY, M.FAILED): S.STOPPED,
    (S.CANARY, M.PAUSED): S.PAUSED,
    (S.CANARY, M.ABANDONED): S.ABANDONED,
    (S.RUNNING, M.ACTED): S.FINISHING,
    (S.RUNNING, M.FAILED): S.STOPPED,
    (S.RUNNING, M.PAUSED): S.PAUSED,
    (S.RUNNING, M.ABANDONED): S.ABANDONED,
    (S.FINISHING, M.ENDED): S.COMPLETED,
    (S.FINISHING, M.ABANDONED): S.ABANDONED,
    (S.PAUSED, M.RESUMED): S.SELECTING,
    (S.PAUSED, M.ABANDONED): S.ABANDONED,
    (S.STOPPED, M.RESUMED): S.SELECTING,
    (S.STOPPED, M.ABANDONED): S.ABANDONED,
}

BULK_TERMINAL = frozenset({S.COMPLETED, S.ABANDONED})
BULK_ACTING = frozenset({S.SELECTING, S.CANARY, S.RUNNING, S.FINISHING})
"""The states in which an operation goes on by itself."""


class ItemStatus(StrEnum):
    """What became of one job of an operation."""

    PENDING = "PENDING"
    """Not acted on yet."""
    STARTED = "STARTED"
    """Redriven; the new job has not ended."""
    SUCCEEDED = "SUCCEEDED"
    """The action was applied; of a redrive: the new job succeeded."""
    FAILED = "FAILED"
    """The action was refused; of a redrive: the new job failed or was cancelled."""
    SKIPPED = "SKIPPED"
    """The job had changed in between, and there was nothing left to do."""


class BulkFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs; `tenants` are those that the caller may touch, None is all."""

    tenants: tuple[str, ...] | None = None
    status: JobStatus | None = None
    request_type: str | None = None
    created_from: Instant | None = None
    created_to: Instant | None = None
    error_signature: str | None = None


class BulkEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of an operation's own trail: who did what to it, and why."""

    at: Instant
    type: str
    by: str | None = None
    reason: str | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """Jobs of an operation by what became of them."""

    pending: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.started + self.succeeded + self.failed + self.skipped

    @property
    def tried(self) -> int:
        return self.started + self.succeeded + self.failed

    def moved(self, before: ItemStatus | None, after: ItemStatus) -> Counts:
        """One item more in `after`, and one less in `before`."""
        changed = {after.lower(): getattr(self, after.lower()) + 1}
        if before is not None:
            changed[before.lower()] = changed.get(before.lower(), getattr(self, before.lower())) - 1
        return replace(self, **changed)


class BulkOperation(Struct, frozen=True, kw_only=True):
    operation_id: str
    action: BulkAction
    filter: BulkFilter
    by: str
    reason: str
    rate_per_second: float
    canary: int = 0
    """How many jobs are tried before the rest."""
    canary_max_failures: int = 0
    max_failures: int | None = None
    """It stops once more jobs than this have failed; None: it never does."""
    created_at: Instant
    updated_at: Instant
    ended_at: Instant | None = None
    status: BulkStatus = BulkStatus.SELECTING
    is_selected: bool = False
    selected_to: str | None = None
    """Up to which job, from the newest on, the matching ones are recorded."""
    counts: Counts = Counts()
    forgiven: int = 0
    """Failures from before somebody let a stopped operation go on."""
    events: tuple[BulkEvent, ...] = ()
    request_hash: str = ""
    """Of what was asked for, so that an idempotency key is not used for something else."""

    @property
    def is_terminal(self) -> bool:
        return self.status in BULK_TERMINAL

    @property
    def is_active(self) -> bool:
        """Whether anything is left to be done or to be looked at by itself."""
        return self.status in BULK_ACTING or (not self.is_terminal and self.counts.started > 0)

    @property
    def new_failures(self) -> int:
        return self.counts.failed - self.forgiven

    @property
    def act_max(self) -> int:
        """How many more jobs may be acted on before outcomes must be known."""
        if self.status is BulkStatus.CANARY:
            return min(self.counts.pending, max(0, self.canary - self.counts.tried))
        return self.counts.pending if self.status is BulkStatus.RUNNING else 0

    def is_visible_to(self, tenants: frozenset[str] | None) -> bool:
        """Whether a caller with these tenants (None: all) sees every tenant that it concerns."""
        own = self.filter.tenants
        return tenants is None or (own is not None and set(own) <= tenants)


def next_move(operation: BulkOperation) -> BulkMove | None:
    """What follows from the counts."""
    counts, failures_max = operation.counts, operation.max_failures
    match operation.status:
        case BulkStatus.SELECTING if operation.is_selected:
            return BulkMove.SELECTED
        case BulkStatus.CANARY:
            if operation.canary and operation.new_failures > operation.canary_max_failures:
                return BulkMove.FAILED
            is_tried = counts.tried >= operation.canary or not counts.pending
            return BulkMove.CANARY_PASSED if not operation.canary or (is_tried and not counts.started) else None
        case BulkStatus.RUNNING:
            if counts.pending and failures_max is not None and operation.new_failures > failures_max:
                return BulkMove.FAILED
            return None if counts.pending else BulkMove.ACTED
        case BulkStatus.FINISHING if not counts.started:
            return BulkMove.ENDED
        case _:
            return None


def settled(operation: BulkOperation, now: Instant) -> BulkOperation:
    """The operation after every move that follows from its counts."""
    while (move := next_move(operation)) is not None:
        operation = moved(operation, move, now)
    return operation


def moved(
    operation: BulkOperation, move: BulkMove, now: Instant, by: str | None = None, reason: str | None = None
) -> BulkOperation:
    """The operation after this move, which must be possible. Moves that only pass through are not in the trail."""
    status = BULK_TRANSITIONS[operation.status, move]
    events = operation.events
    is_telling = by is not None or move in (BulkMove.FAILED, BulkMove.ENDED)
    if is_telling or (move is BulkMove.CANARY_PASSED and operation.canary):
        events = (*events, BulkEvent(at=now, type=move.value, by=by, reason=reason))
        if len(events) > EVENTS_MAX:
            events = (events[0], *events[2:])
    return replace(
        operation,
        status=status,
        updated_at=now,
        ended_at=now if status in BULK_TERMINAL else None,
        forgiven=operation.counts.failed if move is BulkMove.RESUMED else operation.forgiven,
        events=events,
    )


def sentence(operation: BulkOperation) -> str:
    """Where it stands, and what to do."""
    counts = operation.counts
    jobs = f"{counts.total} job" + ("" if counts.total == 1 else "s")
    so_far = f"{counts.total - counts.pending} of {jobs}"
    failed = f"{counts.failed} failed"
    match operation.status:
        case BulkStatus.SELECTING:
            return f"Recording the jobs that match: {counts.total} so far."
        case BulkStatus.CANARY:
            known, size = counts.succeeded + counts.failed, min(operation.canary, counts.total)
            return (
                f"Canary: {known} of {size} have ended, {failed} (at most {operation.canary_max_failures} may);"
                f" the rest of the {jobs} follows."
            )
        case BulkStatus.RUNNING:
            return f"Acted on {so_far}; {failed}."
        case BulkStatus.FINISHING:
            return f"Acted on {so_far}; waiting for the end of {counts.started}; {failed}."
        case BulkStatus.PAUSED:
            return f"Paused after {so_far}: resume or abandon it."
        case BulkStatus.STOPPED:
            return (
                f"Stopped after {so_far}, because {operation.new_failures} failed: look at the outcomes, then resume it"
                " (failures are counted anew) or abandon it."
            )
        case BulkStatus.COMPLETED:
            return f"Done with {jobs}: {counts.succeeded} succeeded, {failed}, {counts.skipped} skipped."
        case _:
            return f"Abandoned after {so_far}."
