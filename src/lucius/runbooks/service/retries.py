"""Operators' retries, the only way out of a failure: of members, a held batch, or init."""

from __future__ import annotations

from collections.abc import Sequence, Set

from lucius.domain.errors import CallerError
from lucius.ports.database import Script
from lucius.runbooks.core import making
from lucius.runbooks.core.answers import BatchActed
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.execution import Execution
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import (
    ACTIVE,
    BATCH_ENDED,
    BECAUSE_FAILED,
    BECAUSE_LIMIT,
    FAILED,
    INIT_DISPATCHED,
    SUCCEEDED,
)
from lucius.runbooks.core.steps import step_of
from lucius.runbooks.engine.turn import Turn, said
from lucius.runbooks.store import batches, followups, inits, members, phases, steps
from lucius.runbooks.store.data_tables import last_known


def retry(turn: Turn, batch: Batch, member_keys: Sequence[str] | None, reason: str = "") -> Script[BatchActed]:
    """Retry these members, or every failed one; without names, a failed init as well."""
    if batch.cancelled_at is not None:
        raise CallerError.of("CONFLICT", f"batch {batch.id} was cancelled: create a new batch of its members")
    if member_keys is None and (yield from _retry_init(turn, batch, reason)):
        return {"batch_id": batch.id, "status": batch.status, "members": 0, "init": True}
    failed = {member.key: member.id for member in (yield from members.failed(batch.id))}
    wanted = failed if member_keys is None else {key: failed[key] for key in member_keys if key in failed}
    unknown = [key for key in member_keys or () if key not in failed]
    if unknown or not wanted:
        what = f"no failed member {', '.join(unknown[:5])}" if unknown else "no failed member"
        raise CallerError.of("CONFLICT", f"batch {batch.id} has {what}: only failed members can be retried")
    busy = (yield from followups.rolling_back(batch.id)) & set(wanted.values())
    if busy:
        raise CallerError.of("CONFLICT", f"{len(busy)} of these members are being rolled back: wait until it has ended")
    yield from reopen_batch(turn, batch)
    # Its later steps may have been cancelled by `max_failures` before it failed itself.
    count = yield from revive(turn, batch, sorted(wanted.values()), frozenset({BECAUSE_FAILED, BECAUSE_LIMIT}))
    yield from members.set_failed(wanted.values(), None)
    for key, member_id in wanted.items():
        turn.note("member-retried", batch, member_id, member=key, **said(reason))
    return {"batch_id": batch.id, "status": batch.status, "members": len(wanted), "steps": count, "init": False}


def retry_not_started(
    turn: Turn, batch: Batch, member_keys: Sequence[str] | None, reason: str = ""
) -> Script[BatchActed]:
    """Members that have not failed, and that `max_failures` stopped before their steps began, continue: these, or all
    of them. The batch stays held, and failures count as before; `resume` ends both."""
    if batch.cancelled_at is not None:
        raise CallerError.of("CONFLICT", f"batch {batch.id} was cancelled: create a new batch of its members")
    stopped = [one for one in (yield from steps.cancelled_of_batch(batch.id)) if one.cancel_cause == BECAUSE_LIMIT]
    of_ids = yield from members.by_ids({one.member_id for one in stopped if one.member_id is not None})
    by_key = {member.key: member.id for member in of_ids.values()}
    wanted = by_key if member_keys is None else {key: by_key[key] for key in member_keys if key in by_key}
    unknown = [key for key in member_keys or () if key not in by_key]
    if unknown or not wanted:
        what = f"did not stop member {', '.join(unknown[:5])}" if unknown else "stopped no member"
        raise CallerError.of("CONFLICT", f"max_failures {what} of batch {batch.id} before its steps began")
    yield from reopen_batch(turn, batch)
    count = yield from revive(turn, batch, sorted(wanted.values()), frozenset({BECAUSE_LIMIT}))
    for key, member_id in wanted.items():
        turn.note("member-retried", batch, member_id, member=key, **said(reason))
    return {"batch_id": batch.id, "status": batch.status, "members": len(wanted), "steps": count, "init": False}


def _retry_init(turn: Turn, batch: Batch, reason: str) -> Script[bool]:
    """Whether the batch's init had failed; if so, it continues with the failed step."""
    chain = turn.changes.hold((yield from inits.of_version(batch.id, batch.version)))
    if batch.status != FAILED or all(one.status == SUCCEEDED for one in chain):
        return False
    if None in (yield from followups.rolling_back(batch.id)):
        raise CallerError.of("CONFLICT", f"the init of batch {batch.id} is being rolled back: wait until it has ended")
    for one in chain:
        one.retry()
    yield from batches.set_status(batch, INIT_DISPATCHED)
    yield from phases.unskip(batch.id, batch.version)
    turn.log.anything(batch.id)
    turn.touch(batch.id).is_init = True
    turn.note("init-retried", batch, **said(reason))
    return True


def reopen_batch(turn: Turn, batch: Batch) -> Script[None]:
    if batch.status not in BATCH_ENDED:
        return
    if (yield from inits.has_not_succeeded(batch.id, batch.version)):
        raise CallerError.of("CONFLICT", f"the init of batch {batch.id} failed: retry it first, without naming members")
    yield from batches.set_status(batch, ACTIVE)
    turn.note("batch-reopened", batch)


def _resolve_anew(turn: Turn, batch: Batch, revived: Sequence[Execution]) -> Script[None]:
    """Use the current data of the members: a corrected value is often the reason for a retry."""
    of_ids = yield from members.by_ids({one.member_id for one in revived if one.member_id is not None})
    current = yield from turn.runbook(batch)
    data = yield from last_known(current, batch.version, [member.key for member in of_ids.values()])
    special = making.specials(batch)
    for one in revived:
        runbook = yield from turn.runbook(batch, one.version)
        outputs = known_outputs(runbook, "step", one.list_name, one.step_index)
        member = of_ids[one.member_id or 0]
        made = making.resolved(step_of(runbook, one), data.get(member.key), special, outputs)
        one.function_name, one.params_json, one.late_json, one.fault = made


def revive(turn: Turn, batch: Batch, member_ids: Sequence[int] | None, causes: Set[str]) -> Script[int]:
    """Reset to `pending` what failed of these members or was cancelled for one of these causes; returns how many."""
    if member_ids is None:
        found = yield from steps.cancelled_of_batch(batch.id)
    else:
        found = yield from steps.of_members(member_ids)
    revived: list[Execution] = []
    for one in turn.changes.hold(found):
        wanted = one.has_failed if one.status != "cancelled" else one.cancel_cause in causes
        if wanted and one.retry():
            revived.append(one)
    yield from _resolve_anew(turn, batch, revived)
    phase_ids = sorted({one.phase_id for one in revived if one.phase_id is not None})
    yield from turn.changes.write()
    # A member that is behind the others runs alone until it reaches the barrier.
    yield from steps.set_catching_up([one.id for one in revived])
    yield from phases.reopen(phase_ids)
    touched = turn.touch(batch.id)
    touched.phases.update(phase_ids)
    touched.members.update(one.member_id for one in revived if one.member_id is not None)
    return len(revived)
