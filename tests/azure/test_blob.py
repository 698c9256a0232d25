"""Blobs on Azurite: limits, conditions, and what is said when something goes wrong."""

from __future__ import annotations

import asyncio
import gzip
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import AccountSasPermissions, ContentSettings, ResourceTypes, generate_account_sas
from tests.azure.lossy_proxy import LossyProxy
from tests.azurite import ACCOUNT, KEY, Azurite

from lucius.azure.blob import (
    BlobAccount,
    BlobConflict,
    BlobFailed,
    BlobForbidden,
    BlobNotFound,
    BlobTooLarge,
    BlobUnavailable,
)


@pytest.fixture
async def account(azurite: Azurite) -> AsyncIterator[BlobAccount]:
    async with BlobAccount.connected(azurite.connection) as account:
        yield account


@pytest.fixture
async def container(account: BlobAccount) -> str:
    name = f"blob-{uuid.uuid4().hex[:12]}"
    await account.create_container(name)
    return name


async def test_what_is_written_is_read_with_its_etag(account: BlobAccount, container: str) -> None:
    etag = await account.write(container, "a/b c/ü.txt", b"hello")
    assert await account.read(container, "a/b c/ü.txt", 5) == (b"hello", etag)
    assert await account.etag(container, "a/b c/ü.txt") == etag
    await account.write(container, "empty", b"")
    assert (await account.read(container, "empty", 0)).content == b""


async def test_a_blob_beyond_the_limit_is_refused_with_both_sizes(account: BlobAccount, container: str) -> None:
    await account.write(container, "large", b"x" * 11)
    with pytest.raises(BlobTooLarge, match="11 bytes; at most 10"):
        await account.read(container, "large", 10)


async def test_a_compressed_blob_is_not_unpacked(account: BlobAccount, container: str) -> None:
    bomb = gzip.compress(b"0" * 10_000_000)
    client = account._client(container, "bomb")
    await client.upload_blob(bomb, content_settings=ContentSettings(content_encoding="gzip"))
    assert (await account.read(container, "bomb", 20_000)).content == bomb


async def test_a_large_file_is_streamed_in_and_out(account: BlobAccount, container: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 36_000)  # 9 MB: three chunks
    etag = await account.write(container, "large", source, overwrite=False)
    with target.open("wb") as file:
        assert await account.fetch(container, "large", file, 10_000_000) == etag
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(BlobConflict):
        await account.write(container, "large", source, overwrite=False)


async def test_of_writers_of_a_new_blob_one_wins(account: BlobAccount, container: str) -> None:
    async def write(number: int) -> str:
        try:
            await account.write(container, "new", str(number).encode(), overwrite=False)
        except BlobConflict:
            return "lost"
        return "won"

    assert Counter(await asyncio.gather(*map(write, range(8)))) == {"won": 1, "lost": 7}


async def test_a_write_and_a_delete_hold_to_the_etag(account: BlobAccount, container: str) -> None:
    first = await account.write(container, "name", b"1")
    second = await account.write(container, "name", b"2", if_match=first)
    with pytest.raises(BlobConflict, match=f"blob://{container}/name of the account {ACCOUNT}: ConditionNotMet"):
        await account.write(container, "name", b"3", if_match=first)
    with pytest.raises(BlobConflict):
        await account.delete(container, "name", if_match=first)
    assert (await account.read(container, "name", 9)).content == b"2"
    assert await account.delete(container, "name", if_match=second) is True
    assert await account.delete(container, "name") is False


async def test_names_are_listed_in_order_up_to_a_limit(account: BlobAccount, container: str) -> None:
    for name in ("b/2", "a/1", "b/1", "b/3"):
        await account.write(container, name, b"")
    assert await account.names(container, "b/", 10) == ["b/1", "b/2", "b/3"]
    assert await account.names(container, "b/", 2) == ["b/1", "b/2"]


async def test_a_lease_is_held_by_one(account: BlobAccount, container: str) -> None:
    await account.write(container, "held", b"")
    mine, other = account.lease(container, "held"), account.lease(container, "held")
    await mine.acquire(15)
    await mine.renew()
    with pytest.raises(BlobConflict):
        await other.acquire(15)
    await mine.release()
    await other.acquire(15)
    await other.release()


async def test_a_missing_blob_and_a_missing_container_are_told_apart(account: BlobAccount, container: str) -> None:
    with pytest.raises(BlobNotFound, match="BlobNotFound"):
        await account.read(container, "missing", 1)
    with pytest.raises(BlobNotFound, match="create the container"):
        await account.write("no-such-container", "name", b"")


async def test_a_write_whose_answer_was_lost_is_recognised(azurite: Azurite) -> None:
    """The proxy passes the write on and answers 503; the SDK tries again and is refused by its own write."""
    async with LossyProxy(azurite.blob_port) as proxy:
        connection = azurite.connection.replace(f":{azurite.blob_port}/", f":{proxy.port}/")
        async with BlobAccount.connected(connection) as account:
            await account.create_container("lossy")
            proxy.lose_next("PUT")
            etag = await account.write("lossy", "claim", b"mine", overwrite=False)
            assert proxy.lost == 1
            proxy.lose_next("PUT")
            etag = await account.write("lossy", "claim", b"again", if_match=etag)
            assert proxy.lost == 2
            assert await account.read("lossy", "claim", 9) == (b"again", etag)


async def test_a_server_that_does_not_answer_fails_within_the_deadline(azurite: Azurite) -> None:
    async with LossyProxy(azurite.blob_port) as proxy:
        proxy.silent = True
        connection = azurite.connection.replace(f":{azurite.blob_port}/", f":{proxy.port}/")
        async with BlobAccount.connected(connection) as account:
            with pytest.raises(BlobUnavailable, match=r"no answer within 0\.3 s"):
                await account.read("c", "n", 1, seconds=0.3)


def _sas(permission: str) -> str:
    until = datetime.now(UTC) + timedelta(minutes=5)
    return generate_account_sas(
        ACCOUNT, KEY, ResourceTypes(object=True), AccountSasPermissions.from_string(permission), until
    )


async def test_a_sas_gives_what_it_permits_and_stays_out_of_errors(
    azurite: Azurite, account: BlobAccount, container: str
) -> None:
    await account.write(container, "name", b"content")
    sas = _sas("r")
    async with BlobAccount.named(ACCOUNT, sas, f"http://127.0.0.1:{azurite.blob_port}/{ACCOUNT}") as signed:
        assert (await signed.read(container, "name", 9)).content == b"content"
        with pytest.raises(BlobForbidden) as refused:
            await signed.write(container, "name", b"changed")
        assert "sig" not in signed.url
    signature = sas.rpartition("sig=")[2]
    assert signature not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("connection", ["", "nonsense", "AccountKey=verysecret;;"])
def test_a_connection_string_that_is_none_is_refused_without_repeating_it(connection: str) -> None:
    with pytest.raises(ValueError) as refused:
        BlobAccount.connected(connection)
    assert "verysecret" not in str(refused.value)
    assert issubclass(BlobConflict, BlobFailed)
