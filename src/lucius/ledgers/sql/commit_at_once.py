"""The same turn as one statement, which PostgreSQL commits by itself: one round trip instead of four or five.

It writes only what it was decided on: if a job, a claim, a limit or a subscription is not as it was when the turn was
decided, the statement fails as a whole and the turn is written as a transaction, which finds out what has changed. New
commands are looked at in a round trip before it, because keys that are known and limits that are full are common.
Locks are taken in the order of the transaction (`lucius.ledgers.sql.commit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from lucius.domain.protocol import Policy
from lucius.ledgers.sql import rows, statements
from lucius.ledgers.sql.commit import (
    BusScript,
    NoticesOf,
    check_limits,
    count_jobs,
    find_duplicates,
    publish,
    slot_ceilings,
    slot_moves,
    write_rows,
)
from lucius.ports.ledger import Change, CommitOutcome, Committed, Conflict
from lucius.sql.database import Check, Fetch, Run, RunAgain, Script
from lucius.sql.together import in_one_round_trip


def commit_at_once_script(
    changes: Sequence[Change],
    enlisted: BusScript | None,
    new_policies: Mapping[str, Policy],
    notices_of: NoticesOf | None,
    looks_first: bool,
) -> Script[list[CommitOutcome]]:
    """Raises `RunAgain`, with nothing written. `looks_first`: compare the jobs' revisions in a round trip of its own,
    so that a job that another process has changed does not cost the others their one statement."""
    outcomes: dict[str, CommitOutcome] = {}
    creations = [c for c in changes if c.before is None]
    readings = [find_duplicates(creations, outcomes), check_limits(changes, creations, outcomes)] if creations else []
    if creations or looks_first:
        yield from in_one_round_trip([_find_conflicts(changes, outcomes), *readings], writes=False)
    standing = [c for c in changes if c.after.job_id not in outcomes]
    if notices_of is not None and any(notices_of(c) for c in standing if c.after.is_terminal):
        raise RunAgain("notices are recorded in a transaction")
    if standing:
        writings = [
            _check_revisions(standing),
            _insert_claims(standing),
            write_rows(standing, new_policies),
            publish(standing, enlisted, at_once=True),
            count_jobs(standing),
            _move_slots(standing),
        ]
        yield from in_one_round_trip(writings, writes=True)
    done = Committed()
    return [outcomes.get(change.after.job_id, done) for change in changes]


def _revisions(changes: Sequence[Change]) -> tuple[list[str], list[int]]:
    known = sorted((c.after.job_id, c.before.revision) for c in changes if c.before is not None)
    return [job_id for job_id, _ in known], [revision for _, revision in known]


def _find_conflicts(changes: Sequence[Change], outcomes: dict[str, CommitOutcome]) -> Script[None]:
    expected = _revisions(changes)
    if expected[0]:
        for row in (yield Fetch(statements.JOBS_THAT_ARE_NOT, expected)):
            outcomes[row[0]] = Conflict()


def _check_revisions(standing: Sequence[Change]) -> Script[None]:
    expected = _revisions(standing)
    if expected[0]:
        yield cast("Fetch", Check(statements.JOBS_ARE, expected))


def _insert_claims(standing: Sequence[Change]) -> Script[None]:
    claims = sorted((rows.claim_key(c.claim.key), c.after.job_id) for c in standing if c.before is None and c.claim)
    if claims:
        yield Run(statements.INSERT_NEW_CLAIM, claims)


def _move_slots(standing: Sequence[Change]) -> Script[None]:
    moves = sorted((scope, move) for scope, move in slot_moves(standing).items() if move)
    if moves:
        ceilings = slot_ceilings(standing)
        scopes = [scope for scope, _ in moves]
        limits = [ceilings.get(scope, statements.NO_CEILING) for scope in scopes]
        yield Run(statements.MOVE_SLOTS_WITHIN, [(scopes, [move for _, move in moves], limits)])
