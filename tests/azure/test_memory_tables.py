"""The tables in memory that tests use answer as Azurite does."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from tests.azurite import Azurite
from tests.memory_tables import MemoryAccount

from lucius.azure.tables import Delete, Insert, Put, Table, TableAccount, TableFailed

STALE = "W/\"datetime'2020-01-01T00%3A00%3A00.0000000Z'\""


async def _answers(table: Table) -> list[Any]:
    """What a table answers to everything that a ledger asks of one."""
    answers: list[Any] = []

    async def note(call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            answer = await call()
        except TableFailed as error:
            answers.append(type(error))
            return None
        answers.append(_plain(answer))
        return answer

    for key in ("a", "b", "c:1", "c:2", "c:2:x", "d"):
        await note(lambda key=key: table.write("p", [Insert(key, {"number": 2**40, "none": None})]))  # type: ignore[misc]
    await note(lambda: table.write("p", [Insert("a", {})]))
    await note(lambda: table.write("p", [Insert("new", {}), Insert("a", {})]))
    row = await note(lambda: table.get("p", "a"))
    await note(lambda: table.get("p", "new"))
    await note(lambda: table.get("p", "b", ["number"]))
    await note(lambda: table.get("p", "b", []))
    await note(lambda: table.write("p", [Put("a", {"text": "t"}, row.etag)]))
    await note(lambda: table.write("p", [Put("a", {"text": "u"}, row.etag)]))
    await note(lambda: table.write("p", [Put("a", {"text": "v"}, STALE), Delete("b")]))
    await note(lambda: table.write("p", [Put("gone", {}, row.etag)]))
    await note(lambda: table.write("p", [Put("gone", {}, row.etag), Put("b", {})]))
    await note(lambda: table.write("p", [Delete("gone")]))
    await note(lambda: table.write("p", [Delete("gone"), Put("b", {"text": "w"})]))
    await note(lambda: table.write("p", [Delete("d", row.etag)]))
    await note(lambda: table.rows("p", limit=100))
    await note(lambda: table.rows("p", "b", "c:2:", limit=100))
    await note(lambda: table.rows("p", "c", limit=2))
    await note(lambda: table.rows("other", limit=2))
    page = await table.page("p", "a", "d", limit=2)
    while page.next is not None:
        answers.append([row.key for row in page.rows])
        page = await table.page("p", "a", "d", limit=2, continuation=page.next)
    answers.append([row.key for row in page.rows])
    return answers


def _plain(answer: Any) -> Any:
    """Without ETags and ids of writes, which are never the same."""
    if isinstance(answer, dict):
        return sorted(answer)
    if isinstance(answer, list):
        return [_plain(one) for one in answer]
    return None if answer is None else (answer.key, {k: v for k, v in answer.values.items() if k != "op_id"})


async def test_answers_are_those_of_azurite(azurite: Azurite) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    async with TableAccount.connected(azurite.connection) as account:
        await account.create_table(name)
        expected = await _answers(account.table(name))
        await account.delete_table(name)
    assert await _answers(MemoryAccount().table(name)) == expected
