"""Rows on Azurite: conditions, transactions, ranges, lost answers, and what is said when something goes wrong."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.azure.lossy_proxy import LossyProxy
from tests.azurite import Azurite
from tests.nats_server import free_port

from lucius.azure.tables import (
    Delete,
    Insert,
    Put,
    Table,
    TableAccount,
    TableConflict,
    TableNotFound,
    TableRefused,
    TableUnavailable,
)


@pytest.fixture
async def account(azurite: Azurite) -> AsyncIterator[TableAccount]:
    async with TableAccount.connected(azurite.connection) as account:
        yield account


@pytest.fixture
async def table(account: TableAccount) -> AsyncIterator[Table]:
    name = f"t{uuid.uuid4().hex[:12]}"
    assert await account.create_table(name)
    assert not await account.create_table(name)
    assert name in await account.table_names()
    yield account.table(name)
    await account.delete_table(name)


async def test_values_are_read_as_they_were_written(table: Table) -> None:
    values = {"text": "größe 😀", "small": 7, "large": 1 << 53, "true": True, "half": 0.5, "bytes": b"\0\xff"}
    etags = await table.write("p", [Insert("r", {**values, "missing": None})])
    row = await table.get("p", "r")
    assert row is not None
    assert {name: row.values[name] for name in row.values if name != "op_id"} == values
    assert [type(row.values[name]) for name in ("small", "large", "true")] == [int, int, bool]
    assert (row.partition, row.key, row.etag) == ("p", "r", etags["r"])
    assert await table.get("p", "other") is None


async def test_keys_with_percent_signs_and_separators_are_kept_apart(table: Table) -> None:
    keys = ["a:b", "a%3Ab", "a%253Ab", "a b", "a%20b", "a+b", "ä", "%27"]
    await table.write("p%2F:q", [Insert(key, {"is": key}) for key in keys])
    for key in keys:
        row = await table.get("p%2F:q", key)
        assert row is not None
        assert (row.key, row.values["is"]) == (key, key)
        await table.write("p%2F:q", [Put(key, {"is": key + "!"}, row.etag)])
    found = await table.rows("p%2F:q", limit=100)
    assert {row.key: row.values["is"] for row in found} == {key: key + "!" for key in keys}


async def test_a_row_is_written_only_as_its_etag_says(table: Table) -> None:
    first = (await table.write("p", [Insert("r", {"n": 1})]))["r"]
    with pytest.raises(TableConflict):
        await table.write("p", [Insert("r", {"n": 2})])
    second = (await table.write("p", [Put("r", {"n": 2}, first)]))["r"]
    for stale in (Put("r", {"n": 3}, first), Delete("r", first)):
        with pytest.raises(TableConflict):
            await table.write("p", [stale])
    await table.write("p", [Delete("r", second)])
    assert await table.get("p", "r") is None
    await table.write("p", [Delete("r")])


async def test_a_transaction_is_written_whole_or_not_at_all(table: Table) -> None:
    etags = await table.write("p", [Insert("a", {"n": 1}), Insert("b", {"n": 1})])
    with pytest.raises(TableConflict):
        await table.write("p", [Put("a", {"n": 2}, etags["a"]), Insert("b", {"n": 2})])
    with pytest.raises(TableNotFound):
        await table.write("p", [Put("a", {"n": 2}, etags["a"]), Delete("c")])
    changed = await table.write("p", [Put("a", {"n": 2}, etags["a"]), Delete("b", etags["b"]), Insert("c", {"n": 2})])
    assert {row.key: row.values["n"] for row in await table.rows("p", limit=10)} == {"a": 2, "c": 2}
    with pytest.raises(TableConflict):
        await table.write("p", [Put("a", {"n": 3}, etags["a"]), Insert("d", {})])
    await table.write("p", [Put("a", {"n": 3}, changed["a"]), Put("e", {"n": 3})])


async def test_a_range_of_a_partition_is_read_in_order_and_in_pages(account: TableAccount, table: Table) -> None:
    await table.write("p", [Insert(f"k:{number:03}", {"n": number, "more": "x"}) for number in range(30)])
    await table.write("q", [Insert("k:001", {"n": 100})])
    requests = _counted(account)
    found = await table.rows("p", "k:005", "k:020", limit=100, select=["n"])
    assert [row.values for row in found] == [{"n": number} for number in range(5, 20)]
    assert requests == {"GET": 1}
    page = await table.page("p", "k:000", limit=10)
    following = await table.page("p", "k:000", limit=10, continuation=page.next)
    assert [row.values["n"] for row in page.rows + following.rows] == list(range(20))
    assert len(await table.rows("p", limit=25)) == 25


async def test_a_transaction_beyond_azures_limits_is_refused_before_it_is_sent(
    account: TableAccount, table: Table
) -> None:
    requests = _counted(account)
    with pytest.raises(TableRefused, match="1 to 100 rows"):
        await table.write("p", [Insert(str(number), {}) for number in range(101)])
    for key in ("a/b", "a\\b", "a#b", "a?b", "a\nb", "a\x7fb", "", "x" * 513):
        with pytest.raises(TableRefused, match="not allowed"):
            await table.write("p", [Insert(key, {})])
    assert requests == {}


@pytest.mark.parametrize("rows", [1, 2])
async def test_own_write_is_recognised_when_its_answer_was_lost(azurite: Azurite, table: Table, rows: int) -> None:
    async with LossyProxy(azurite.table_port) as proxy:
        connection = azurite.connection.replace(f":{azurite.table_port}/", f":{proxy.port}/")
        async with TableAccount.connected(connection) as lossy:
            through = lossy.table(table.place.split()[1])
            proxy.lose_next("POST")
            written = [Insert("a", {"n": 1}), Insert("b", {"n": 1})][:rows]
            await through.write("p", written)
            row = await table.get("p", "a")
            assert row is not None
            proxy.lose_next("POST" if rows == 2 else "PUT")
            await through.write("p", [Put("a", {"n": 2}, row.etag), *([Put("b", {"n": 2})] if rows == 2 else [])])
            assert proxy.lost == 2
            with pytest.raises(TableConflict):
                await through.write("p", [Insert("a", {"n": 3})])
    row = await table.get("p", "a")
    assert row is not None
    assert row.values["n"] == 2


@pytest.mark.parametrize("rows", [1, 2])
async def test_a_write_is_sent_again_when_its_connection_ended(azurite: Azurite, table: Table, rows: int) -> None:
    async with LossyProxy(azurite.table_port) as proxy:
        connection = azurite.connection.replace(f":{azurite.table_port}/", f":{proxy.port}/")
        async with TableAccount.connected(connection) as through_proxy:
            through = through_proxy.table(table.place.split()[1])
            proxy.drop_next("POST")
            await through.write("p", [Insert("a", {"n": 1}), Insert("b", {"n": 1})][:rows])
            for _ in range(3):
                proxy.drop_next("POST")
            with pytest.raises(TableUnavailable) as raised:
                await through.write("p", [Insert("c", {"n": 1})])
            assert not raised.value.is_unknown
            assert proxy.dropped == 4
    assert [row.key for row in await table.rows("p", limit=10)] == ["a", "b"][:rows]


async def test_what_is_missing_or_forbidden_is_told_without_secrets(azurite: Azurite, account: TableAccount) -> None:
    with pytest.raises(TableNotFound, match="lucius db upgrade"):
        await account.table("nonesuch").get("p", "r")
    with pytest.raises(TableNotFound, match="lucius db upgrade"):
        await account.table("nonesuch").write("p", [Insert("r", {})])
    async with TableAccount.connected(azurite.connection.replace("AccountKey=Eby", "AccountKey=Abc")) as stranger:
        with pytest.raises(TableUnavailable, match="Storage Table Data Contributor") as raised:
            await stranger.table("nonesuch").get("p", "r")
    assert "Signature" not in str(raised.value)
    with pytest.raises(ValueError, match="not a connection string"):
        TableAccount.connected("AccountName=")


async def test_an_account_that_is_away_is_unavailable(azurite: Azurite) -> None:
    connection = azurite.connection.replace(f":{azurite.table_port}/", f":{free_port()}/")
    async with TableAccount.connected(connection) as away:
        with pytest.raises(TableUnavailable):
            await away.table("any").get("p", "r")


def _counted(account: TableAccount) -> Counter[str]:
    requests: Counter[str] = Counter()
    account.observers.append(lambda method, url, body: requests.update([method]))
    return requests
