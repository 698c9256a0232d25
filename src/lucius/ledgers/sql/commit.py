"""The transaction that writes a turn.

Locks are taken in one order everywhere, so that two turns never wait for each other in a circle: jobs by id,
causes of notifications by key, claims by key, messages, the counts by minute and hour, and last the in-flight counters
by scope, each moved once by its net change. These are looked at before anything is written; if another process filled
one in between, the transaction is rolled back and run again. On a database that others share, all that is read leaves
in one round trip, then all that is written but for the in-flight counters, which many turns wait for, and then those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lucius.domain.job import Job
from lucius.domain.notifications import Notice
from lucius.domain.protocol import Policy
from lucius.ledgers.sql import rows, statements
from lucius.ledgers.sql.audit import note_acts
from lucius.ledgers.sql.spec_document import policy_text
from lucius.notifications.recording import record
from lucius.ports.bus import DeliveryRef, Message
from lucius.ports.ledger import Change, CommitOutcome, Committed, Conflict, Duplicate, Limit, Saturated
from lucius.sql.database import Fetch, Run, RunAgain, Script
from lucius.sql.together import together


class BusScript(Protocol):
    def __call__(
        self,
        messages: Sequence[Message],
        settled: Sequence[DeliveryRef],
        are_unique: bool = False,
        at_once: bool = False,
    ) -> Script[None]:
        """What an enlisted bus adds to the transaction: see `EnlistingBus.enlisted`."""
        ...


NoticesOf = Callable[[Change], Sequence[Notice]]
"""What recipients are to be told of a change that ends a job."""


def slot_moves(changes: Sequence[Change]) -> dict[str, int]:
    """Net change per scope: a job takes its slots when it is created and gives them back when it ends."""
    moves: dict[str, int] = {}
    for change in changes:
        was_open = change.before is not None and not change.before.is_terminal
        delta = (not change.after.is_terminal) - was_open
        if delta:
            for scope in change.after.slots:
                moves[scope] = moves.get(scope, 0) + delta
    return moves


def admit(creations: Sequence[Change], ending: dict[str, int], counts: dict[str, int]) -> dict[str, Limit]:
    """Of new jobs, in order, those that find a scope full, with the limit they met."""
    taken = {scope: counts.get(scope, 0) + move for scope, move in ending.items()}
    refused: dict[str, Limit] = {}
    for change in creations:
        scopes = change.after.slots
        full = next(
            (lim for lim in change.limits if taken.get(lim.scope, counts.get(lim.scope, 0)) >= lim.maximum), None
        )
        if full is not None:
            refused[change.after.job_id] = full
            continue
        for scope in scopes:
            taken[scope] = taken.get(scope, counts.get(scope, 0)) + 1
    return refused


def commit_script(
    changes: Sequence[Change],
    enlisted: BusScript | None,
    is_shared: bool,
    new_policies: Mapping[str, Policy],
    notices_of: NoticesOf | None = None,
) -> Script[list[CommitOutcome]]:
    """`is_shared`: other processes may be writing too; where not, nothing need be locked or looked at twice.
    `new_policies`: those of the changes, by id, that may not be in the ledger yet."""
    outcomes: dict[str, CommitOutcome] = {}
    updates = [c for c in changes if c.before is not None]
    creations = [c for c in changes if c.before is None]
    readings = []
    if updates:
        readings.append((_lock_and_compare if is_shared else _compare)(updates, outcomes))
    if creations:
        readings += [find_duplicates(creations, outcomes), check_limits(changes, creations, outcomes)]
    yield from together(readings, is_shared)
    standing = [c for c in changes if c.after.job_id not in outcomes]
    if standing:
        if notices_of is not None:
            yield from _record_notices(standing, notices_of)
        writings = [take_claims(standing, is_shared), write_rows(standing, new_policies)]
        writings += [publish(standing, enlisted), count_jobs(standing)]
        yield from together(writings, is_shared)
        yield from _move_slots(standing, is_shared)
    done = Committed()
    return [outcomes.get(change.after.job_id, done) for change in changes]


def publish(standing: Sequence[Change], enlisted: BusScript | None, at_once: bool = False) -> Script[None]:
    if enlisted is not None:
        messages = [message for c in standing for message in c.messages]
        settled = [ref for c in standing for ref in c.settled]
        if messages or settled:
            # A turn that is decided again makes the same message, but only one of the two is written.
            yield from enlisted(messages, settled, are_unique=True, at_once=at_once)


def _record_notices(standing: Sequence[Change], notices_of: NoticesOf) -> Script[None]:
    notices = [notice for c in standing if c.after.is_terminal for notice in notices_of(c)]
    if notices:
        yield from record(notices, max(notice.facts.at for notice in notices))


def _compare(updates: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> Script[None]:
    expected = [(change.after.spec.job_id, change.before.revision) for change in updates if change.before]
    for row in (yield Fetch(statements.MOVED_JOBS, [expected])):
        outcomes[row[0]] = Conflict()


def _lock_and_compare(updates: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> Script[None]:
    found = yield Fetch(statements.LOCK_JOBS, [sorted(change.after.job_id for change in updates)])
    revisions = {row[0]: row[1] for row in found}
    for change in updates:
        assert change.before is not None
        if revisions.get(change.after.job_id) != change.before.revision:
            outcomes[change.after.job_id] = Conflict()


def find_duplicates(creations: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> Script[None]:
    """Claims taken in earlier transactions, or by an earlier change of this one."""
    keys = {rows.claim_key(c.claim.key): c for c in reversed(creations) if c.claim}
    if not keys:
        return
    found = yield Fetch(statements.READ_CLAIMS, [sorted(keys)])
    taken = {row[0]: Duplicate(row[1], row[2], row[3]) for row in found}
    for change in creations:
        if change.claim is None:
            continue
        key = rows.claim_key(change.claim.key)
        if key in taken:
            outcomes[change.after.job_id] = taken[key]
        elif keys[key] is not change:
            first = keys[key].after
            outcomes[change.after.job_id] = Duplicate(first.job_id, first.spec.idempotency_hash, first.status)


def check_limits(
    changes: Sequence[Change], creations: Sequence[Change], outcomes: dict[str, CommitOutcome]
) -> Script[None]:
    scopes = sorted({limit.scope for change in creations for limit in change.limits})
    if not scopes:
        return
    found = yield Fetch(statements.READ_SLOTS, [scopes])
    creations = [c for c in creations if c.after.job_id not in outcomes]
    ending = slot_moves([c for c in changes if c.before is not None and c.after.job_id not in outcomes])
    refused = admit(creations, ending, {row[0]: row[1] for row in found})
    first_refusals = {job_id: Saturated(limit) for job_id, limit in refused.items()}
    outcomes.update(first_refusals)
    # A duplicate, within this turn, of a command that found no room found no room either.
    for change in changes:
        outcome = outcomes.get(change.after.job_id)
        if isinstance(outcome, Duplicate) and outcome.job_id in first_refusals:
            outcomes[change.after.job_id] = first_refusals[outcome.job_id]


def take_claims(standing: Sequence[Change], is_shared: bool) -> Script[None]:
    claims = sorted((rows.claim_key(c.claim.key), c.after.job_id) for c in standing if c.before is None and c.claim)
    if not claims:
        return
    if not is_shared:
        yield Run(statements.INSERT_CLAIM, claims)
        return
    taken = yield Fetch(statements.TAKE_CLAIMS, [list(column) for column in zip(*claims, strict=True)])
    if len(taken) < len(claims):
        raise RunAgain("another process took one of these claims in between")


def write_rows(standing: Sequence[Change], new_policies: Mapping[str, Policy]) -> Script[None]:
    created = [c for c in standing if c.before is None]
    updated = [c for c in standing if c.before is not None]
    if created:
        if new_policies:
            yield Run(statements.INSERT_POLICY, [(key, policy_text(one)) for key, one in sorted(new_policies.items())])
        yield Run(statements.INSERT_STATE, [rows.new_state_row(c) for c in created], in_one_statement=True)
        yield Run(statements.INSERT_SPEC, [rows.spec_row(c.after) for c in created], in_one_statement=True)
        redriven = sorted(rows.redriven_row(c.after.spec) for c in created if c.after.spec.redrive_of is not None)
        if redriven:
            yield Run(statements.INSERT_CLOSING, redriven)
        searchable = [row for c in created if c.after.spec.searchable for row in rows.search_rows(c.after.spec)]
        if searchable:
            yield Run(statements.INSERT_SEARCH_VALUE, searchable, in_one_statement=True)
    if updated:
        moving: list[Job] = []
        others: list[Job] = []
        for change in updated:
            (moving if rows.only_moves(change) else others).append(change.after)
        if moving:
            yield Run(statements.UPDATE_MOVING, [rows.moving_row(job) for job in moving], in_one_statement=True)
        if others:
            yield Run(statements.UPDATE_STATE, [rows.state_row(job) for job in others], in_one_statement=True)
    past = [row for c in standing if c.before is not None or c.past_attempts for row in rows.past_attempt_rows(c)]
    if past:
        yield Run(statements.INSERT_ATTEMPT, past)
    outputs = [row for c in standing for row in rows.output_rows(c)]
    if outputs:
        yield Run(statements.WRITE_OUTPUT, outputs)
    events = [rows.events_row(c) for c in standing if c.events]
    if events:
        yield Run(statements.INSERT_EVENTS, events, in_one_statement=True)
    yield from note_acts(standing)
    webhooks = [rows.webhook_row(c.webhook) for c in standing if c.webhook]
    if webhooks:
        yield Run(statements.INSERT_WEBHOOK, webhooks)


def count_jobs(standing: Sequence[Change]) -> Script[None]:
    counts = rows.job_counts(standing)
    if counts:
        yield Run(statements.COUNT_JOBS, counts)


def _move_slots(standing: Sequence[Change], is_shared: bool) -> Script[None]:
    moves = {scope: move for scope, move in slot_moves(standing).items() if move}
    if not moves:
        return
    if not is_shared:
        yield Run(statements.MOVE_SLOTS, sorted(moves.items()))
        return
    scopes = sorted(moves)
    counts = yield Fetch(statements.MOVE_SLOTS_AND_READ, (scopes, [moves[scope] for scope in scopes]))
    ceilings = slot_ceilings(standing)
    if any(row[1] > ceilings[row[0]] for row in counts if row[0] in ceilings):
        raise RunAgain("another process filled a limit in between")


def slot_ceilings(standing: Sequence[Change]) -> dict[str, int]:
    """How far a scope may be filled after these changes for each new job to have found room when its turn came.

    Jobs accepted under different versions of the registry may bring different limits for one scope.
    """
    places: dict[str, int] = {}
    room: dict[str, int] = {}
    for change in standing:
        if change.before is None:
            for scope in change.after.slots:
                places[scope] = places.get(scope, 0) + 1
            for limit in change.limits:
                left = limit.maximum - places.get(limit.scope, 0)
                room[limit.scope] = min(room.get(limit.scope, left), left)
    return {scope: left + places.get(scope, 0) for scope, left in room.items()}
