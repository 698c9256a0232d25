"""Names between processes: how they are packed, and what happens if there are too many or nobody to hear them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lucius.sql import postgres_wakeups
from lucius.sql.postgres import PostgresDatabase
from lucius.sql.postgres_wakeups import EVERYTHING, NAMES_MAX, PAYLOAD_BYTES_MAX, PostgresWakeups

PATIENCE_SECONDS = 20.0


class Heard:
    def __init__(self, wakeups: PostgresWakeups, kind: str) -> None:
        self.names: list[str] = []
        self.alls = 0
        self.stop = wakeups.listen(kind, self.names.append, self._all)

    def _all(self) -> None:
        self.alls += 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def test_names_reach_those_who_listen_to_their_kind_in_other_processes_only(postgres_url: str) -> None:
    async with PostgresDatabase(postgres_url, pool_max=1) as here, PostgresDatabase(postgres_url, pool_max=1) as there:
        own, numbers, letters = Heard(here.wakeups, "n"), Heard(there.wakeups, "n"), Heard(there.wakeups, "l")
        await until(lambda: bool(here.wakeups._peers and there.wakeups._peers and there.wakeups.is_working))
        many = [f"n{number:05d}" for number in range(3_000)]  # More than one payload takes.
        here.wakeups.tell([*many, "lx"])
        await until(lambda: len(numbers.names) == len(many) and letters.names == ["x"])
        assert sorted(numbers.names) == [name[1:] for name in many]
        assert own.names == []

        letters.stop()
        looks = numbers.alls
        here.wakeups.tell(f"l{number}" for number in range(NAMES_MAX + 1))
        await until(lambda: numbers.alls > looks)
        assert letters.names == ["x"]


async def test_nobody_is_told_where_nobody_else_is_heard_of(postgres_url: str) -> None:
    async with PostgresDatabase(postgres_url, pool_max=1) as alone:
        heard = Heard(alone.wakeups, "n")
        await until(lambda: alone.wakeups.is_working)
        assert heard.alls == 1, "whatever happened before it listened"
        alone.wakeups.tell(["n1"])
        assert not alone.wakeups._pending
        assert alone.wakeups.look_seconds(0.05) == 1.0


async def test_a_database_that_nobody_listens_to_has_no_connection_for_it(postgres_url: str) -> None:
    async with PostgresDatabase(postgres_url, pool_max=1) as database:
        assert database.wakeups._task is None
        assert database.wakeups.look_seconds(0.05) == 0.05


def test_payloads_stay_below_what_postgresql_takes() -> None:
    wakeups = PostgresWakeups("a test", _never)
    payloads = list(wakeups._payloads(f"s{number}" for number in range(5_000)))
    assert len(payloads) > 1
    assert all(len(payload.encode()) <= PAYLOAD_BYTES_MAX for payload in payloads)
    assert {payload.split(" ")[0] for payload in payloads} == {wakeups._token}
    assert sum(len(payload.split(" ")) - 1 for payload in payloads) == 5_000
    assert list(wakeups._payloads([EVERYTHING])) == [f"{wakeups._token} *"]


async def test_a_server_that_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_wakeups, "RETRY_SECONDS", 0.001)
    tries = 0

    async def refuse() -> None:
        nonlocal tries
        tries += 1
        raise ConnectionRefusedError("no server")

    wakeups = PostgresWakeups("a test", refuse)
    Heard(wakeups, "n")
    await until(lambda: tries > 3)
    assert (wakeups.is_working, wakeups.problem) == (False, "no server")
    await wakeups.close()


async def _never() -> None:
    raise AssertionError("nobody listens")
