"""Brings a database from one schema version to another, in transactions that can be interrupted anywhere.

Every transaction reads where the upgrade stands before it does anything and records where it stands afterwards. So a
process that was killed is continued by the next one, and two that run at the same time take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from lucius.sql import schema_state
from lucius.sql.database import Database, Fetch, Run, Script
from lucius.sql.migration import Copy, CopyMismatch, Migration, SchemaError, SchemaMismatch
from lucius.sql.programs import refuse_older_programs
from lucius.sql.schema_state import Phase, SchemaState, read_state

Report = Callable[[int, int], None]
"""How many rows are copied, and how many there are in all."""

LOCK_SECONDS = 30
"""How long a statement waits for a lock, such as that of another upgrade, before it fails."""


class _Begun(NamedTuple):
    made: int
    underway: Migration | None
    """The staged migration to continue with."""
    is_done: bool


async def upgrade(
    database: Database, migrations: Sequence[Migration], report: Report | None, ignored_pids: Collection[int]
) -> int:
    """Apply every migration that the database lacks; how many there were."""
    made = 0
    while True:
        begun = await database.write(lambda: _begin(database, migrations, ignored_pids))
        made += begun.made
        migration = begun.underway
        if migration is not None:
            if migration.copy is not None:
                await _copy(database, migration, migration.copy, report)
                await _compare(database, migration.copy)
            made += await database.write(partial(_swap, database.is_shared, migration, ignored_pids))
        elif begun.is_done:
            return made


async def abandon(database: Database, migrations: Sequence[Migration]) -> int | None:
    """Undo the expansion of the migration under way; its version, or None if there is none."""
    return await database.write(lambda: _abandon(database.is_shared, migrations))


async def contract(database: Database, migrations: Sequence[Migration], ignored_pids: Collection[int]) -> list[int]:
    """Remove what only older programs need; the versions of the migrations that were contracted."""
    contracted = []
    for migration in migrations:
        if not migration.contract:
            continue
        if await database.write(partial(_contract, database.is_shared, migration, ignored_pids)):
            contracted.append(migration.version)
    return contracted


def _begin(database: Database, migrations: Sequence[Migration], ignored_pids: Collection[int]) -> Script[_Begun]:
    """Apply the plain migrations that come next, or expand for a staged one."""
    is_shared = database.is_shared
    state = yield from _locked_state(is_shared)
    too_new = state.too_new_for(migrations[-1].version)
    if too_new is not None:
        raise SchemaMismatch(f"{database.name} {too_new}: upgrade LUCIUS")
    underway = state.underway
    if underway is not None:
        if underway.version > migrations[-1].version:
            return _Begun(0, None, is_done=True)  # A later program's, which this one can work with.
        return _Begun(0, _known(migrations, underway.version), is_done=False)
    pending = [migration for migration in migrations if migration.version > state.version]
    if not state.rows:
        yield from _create(is_shared, pending)
        return _Begun(len(pending), None, is_done=True)
    plain = list(takewhile(lambda migration: not migration.is_staged, pending))
    if plain:
        yield from _refuse(is_shared, state, plain, ignored_pids)
        for migration in plain:
            yield from _run(migration.expand(is_shared))
            yield schema_state.record(migration.version, migration.name, migration.oldest, Phase.APPLIED)
        return _Begun(len(plain), None, is_done=len(plain) == len(pending))
    if not pending:
        return _Begun(0, None, is_done=True)
    staged = pending[0]
    yield from _refuse(is_shared, state, [staged], ignored_pids)
    yield from _run(staged.expand(is_shared))
    # From here on no program that cannot work with this migration starts: rows do not change while they are copied.
    phase = Phase.COPIED if staged.copy is None else Phase.EXPANDED
    yield schema_state.record(staged.version, staged.name, staged.oldest, phase)
    return _Begun(0, staged, is_done=False)


def _create(is_shared: bool, migrations: Sequence[Migration]) -> Script[None]:
    """Make the tables of a new database, which has no rows to keep and no older programs to wait for."""
    for migration in migrations:
        yield from _run(migration.expand(is_shared))
        if migration.copy is not None:
            position = (yield from migration.copy.step(None)).position
            while position is not None:
                position = (yield from migration.copy.step(position)).position
        yield from _run(migration.swap + migration.contract)
        phase, oldest = (
            (Phase.CONTRACTED, migration.version) if migration.contract else (Phase.APPLIED, migration.oldest)
        )
        yield schema_state.record(migration.version, migration.name, oldest, phase)


async def _copy(database: Database, migration: Migration, copy: Copy, report: Report | None) -> None:
    total = await database.read(copy.total)
    while True:
        done, is_left = await database.write(lambda: _copy_step(database.is_shared, migration.version, copy))
        if report is not None:
            report(done, total)
        if not is_left:
            return


def _copy_step(is_shared: bool, version: int, copy: Copy) -> Script[tuple[int, bool]]:
    """Move some rows; how many are moved in all, and whether any are left."""
    row = (yield from _locked_state(is_shared)).row(version)
    if row is None:
        raise SchemaError(f"the upgrade to schema version {version} was abandoned by another process")
    if row.phase is not Phase.EXPANDED:
        return row.rows_copied, False
    moved = yield from copy.step(row.position)
    if moved.position is not None and moved.position == row.position:
        raise CopyMismatch(f"copying rows for schema version {version} stopped at {row.position!r}")
    is_left = moved.position is not None
    rows_copied = row.rows_copied + moved.rows
    yield schema_state.record_copied(version, Phase.EXPANDED if is_left else Phase.COPIED, moved.position, rows_copied)
    return rows_copied, is_left


async def _compare(database: Database, copy: Copy) -> None:
    position: str | None = None
    while True:
        position = (await database.read(partial(copy.compare, position))).position
        if position is None:
            return


def _swap(is_shared: bool, migration: Migration, ignored_pids: Collection[int]) -> Script[bool]:
    """Apply the migration; False if another process has done so."""
    state = yield from _locked_state(is_shared)
    row = state.row(migration.version)
    if row is None or row.phase is not Phase.COPIED:
        return False
    # A program of version 10 or earlier that had lost its connection does not read the version when it comes back.
    yield from _refuse(is_shared, state, [migration], ignored_pids)
    yield from _run(migration.swap)
    yield schema_state.record_phase(migration.version, Phase.APPLIED, migration.oldest)
    return True


def _abandon(is_shared: bool, migrations: Sequence[Migration]) -> Script[int | None]:
    underway = (yield from _locked_state(is_shared)).underway
    if underway is None:
        return None
    migration = _known(migrations, underway.version)
    if not migration.abandon:
        raise SchemaError(f"the upgrade to schema version {migration.version} cannot be abandoned: complete it")
    yield from _run(migration.abandon)
    yield schema_state.forget(migration.version)
    return migration.version


def _contract(is_shared: bool, migration: Migration, ignored_pids: Collection[int]) -> Script[bool]:
    """Contract one migration; False if that is done."""
    state = yield from _locked_state(is_shared)
    row = state.row(migration.version)
    if row is None or row.phase is not Phase.APPLIED:
        return False
    if is_shared:
        purpose = f"contracting schema version {migration.version}"
        yield from refuse_older_programs(migration.version, state.version, ignored_pids, purpose)
    yield from _run(migration.contract)
    yield schema_state.record_phase(migration.version, Phase.CONTRACTED, migration.version)
    return True


def _locked_state(is_shared: bool) -> Script[SchemaState]:
    """Where the upgrade stands; until the transaction ends, no other process moves it on."""
    if is_shared:
        yield Run(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        yield Fetch("SELECT pg_advisory_xact_lock(5824001)")
    yield from schema_state.make_table(is_shared)
    return (yield from read_state(is_shared))


def _refuse(
    is_shared: bool, state: SchemaState, migrations: Sequence[Migration], ignored_pids: Collection[int]
) -> Script[None]:
    if is_shared:
        oldest = max(migration.oldest for migration in migrations)
        purpose = f"the upgrade to schema version {migrations[-1].version}"
        yield from refuse_older_programs(oldest, state.version, ignored_pids, purpose)


def _known(migrations: Sequence[Migration], version: int) -> Migration:
    for migration in migrations:
        if migration.version == version:
            return migration
    raise SchemaMismatch(f"an upgrade to schema version {version} is under way, which this program does not know")


def _run(statements: Sequence[str]) -> Script[None]:
    for statement in statements:
        yield Run(statement)
