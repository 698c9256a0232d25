"""Sessions and links of the console, on both databases."""

from __future__ import annotations

import pytest

from lucius.domain.time import after
from lucius.ledgers.sql.console_tokens import SqlConsoleTokens
from lucius.sql.database import Database
from lucius.testing.samples import START, ManualClock
from lucius.usecases.console_sessions import ConsoleSessions

ANN, BOB = "ab" * 32, "cd" * 32
MINUTE_SECONDS = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(f"{request.param}_database")
    return found


async def test_session_of_a_person_ends_at_the_earlier_of_both_ends(database: Database) -> None:
    clock = ManualClock()
    now = 0.0
    sessions = ConsoleSessions(SqlConsoleTokens(database), clock, 3_600.0, lambda: now)
    short = await sessions.new_person_session(ANN, '{"label": "Ann"}', after(clock.now(), 60))
    long = await sessions.new_person_session(ANN, "{}", after(clock.now(), 86_400))
    assert (short.expires_at, long.expires_at) == (after(START, 60), after(START, 3_600))
    found = await sessions.find(short.token)
    assert found is not None
    assert (found.key_hash, found.person) == (ANN, '{"label": "Ann"}')
    link = await sessions.new_link(BOB)
    session = await sessions.use_link(link.token)
    assert session is not None
    found = await sessions.find(session.token)
    assert found is not None
    assert (found.key_hash, found.person) == (BOB, None)
    clock.advance(60)
    assert await sessions.find(short.token) is None, "also while it was found a moment ago"
    assert await sessions.find(long.token) is not None
    await sessions.end(long.token)
    assert await sessions.find(long.token) is None
