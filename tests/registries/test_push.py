"""Pushes to App Configuration: whole, exclusive, and resumable wherever they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from tests.azurite import Azurite
from tests.registries.appconfig_source import AppConfigSource

from lucius.azure.blob import BlobAccount
from lucius.ports.registry import Registry
from lucius.registries.appconfig import AppConfigStore, StoreFailed
from lucius.registries.appconfig import pushing as pushing_module
from lucius.registries.appconfig.blobs import BlobDocuments
from lucius.registries.appconfig.history import read_history
from lucius.registries.appconfig.keys import SENTINEL, key_of
from lucius.registries.appconfig.pushing import PushHalted, PushPlan, PushRefused, plan_push, push, push_under_way
from lucius.registries.appconfig.reading import VALUE_BYTES_MAX, LargeDocuments
from lucius.registries.appconfig.sentinel import read_sentinel
from lucius.registries.appconfig.store import Setting
from lucius.registries.appconfig.stored import read_stored
from lucius.registries.contents import Rules
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import OTHER, PROTOCOL

FIRST = {"protocols:SCAN:1": PROTOCOL.encode(), "tenants:a": b"id: a", "tenants:b": b"id: b"}
SECOND = {
    "protocols:SCAN:1": PROTOCOL.encode(),
    "protocols:FAX:1": OTHER.encode(),
    "tenants:a": b"{id: a, max_inflight: 3}",
    "globals": b"max_inflight: 50\n",
}


@pytest.fixture
async def server() -> AsyncIterator[AppConfigServer]:
    async with AppConfigServer() as running:
        yield running


@pytest.fixture
def source(server: AppConfigServer, tmp_path: Path) -> AppConfigSource:
    return AppConfigSource(server, tmp_path / "cache.json", label="test")


@pytest.fixture
async def store(source: AppConfigSource) -> AsyncIterator[AppConfigStore]:
    async with AppConfigStore(source.options) as opened:
        yield opened


async def planned(store: AppConfigStore, documents: dict[str, bytes], large: LargeDocuments | None = None) -> PushPlan:
    return plan_push(await read_stored(store, large, Rules()), documents)


async def pushed(store: AppConfigStore, documents: dict[str, bytes], large: LargeDocuments | None = None) -> None:
    await push(store, large, await planned(store, documents, large), "ann")


def writes(server: AppConfigServer) -> list[str]:
    return [f"{seen.method} {seen.path.rpartition('/')[2]}" for seen in server.requests if seen.method != "GET"]


async def looked(source: AppConfigSource, registry: Registry) -> str:
    with suppress(StoreFailed):
        await source.look(registry)
    return "\n".join(map(str, registry.problems))


async def test_push_writes_what_differs_with_the_sentinel_first_and_last(
    server: AppConfigServer, source: AppConfigSource, store: AppConfigStore
) -> None:
    await pushed(store, FIRST)
    async with source.open() as registry:
        assert set(registry.snapshot().tenants) == {"a", "b"}
        server.requests.clear()
        plan = await planned(store, SECOND)
        assert {one.identity: one.change for one in plan.differences} == {
            "globals": "added",
            "protocols:FAX:1": "added",
            "tenants:a": "changed",
            "tenants:b": "removed",
        }
        await push(store, None, plan, "ann")
        assert writes(server) == [
            f"PUT {SENTINEL}",
            "PUT lucius:protocols:FAX:1",
            "PUT lucius:tenants:a",
            "PUT lucius:globals",
            "DELETE lucius:tenants:b",
            f"PUT {SENTINEL}",
        ]
        assert await looked(source, registry) == ""
        assert set(registry.snapshot().tenants) == {"a"}
        assert registry.snapshot().settings.max_inflight == 50
    assert (await planned(store, SECOND)).is_empty


async def test_second_of_two_pushes_from_the_same_state_writes_nothing(
    server: AppConfigServer, store: AppConfigStore
) -> None:
    await pushed(store, FIRST)
    mine, theirs = await planned(store, SECOND), await planned(store, {**FIRST, "tenants:c": b"id: c"})
    await push(store, None, theirs, "bob")
    before = list(server.key_values)
    with pytest.raises(PushRefused, match="somebody else has pushed meanwhile"):
        await push(store, None, mine, "ann")
    assert list(server.key_values) == before


async def test_of_many_pushes_at_once_exactly_one_counts_and_its_keys_are_all_there(
    server: AppConfigServer, source: AppConfigSource, store: AppConfigStore
) -> None:
    await pushed(store, FIRST)
    plans = [await planned(store, {**FIRST, f"tenants:t{one}": f"id: t{one}".encode()}) for one in range(8)]
    ended = await asyncio.gather(
        *(push(store, None, plan, f"p{number}") for number, plan in enumerate(plans)), return_exceptions=True
    )
    won = [number for number, one in enumerate(ended) if not isinstance(one, BaseException)]
    assert len(won) == 1
    assert all(isinstance(one, PushRefused) for number, one in enumerate(ended) if number not in won)
    async with source.open() as registry:
        assert set(registry.snapshot().tenants) == {"a", "b", f"t{won[0]}"}


class Killed(BaseException):
    """As when the process dies: nothing catches it."""


class DyingStore(AppConfigStore):
    """Dies at its nth write, before or after the store has it."""

    def __init__(self, store: AppConfigStore, at: int, *, arrives: bool) -> None:
        super().__init__(store.options)
        self._left = at
        self._arrives = arrives

    async def write(self, setting: Setting) -> str:
        return str(await self._die_or(super().write(setting)))

    async def delete(self, setting: Setting) -> None:
        await self._die_or(super().delete(setting))

    async def _die_or(self, call: object) -> object:
        assert asyncio.iscoroutine(call)
        self._left -= 1
        if self._left < 0 and not self._arrives:
            call.close()
            raise Killed
        answer = await call
        if self._left < 0:
            raise Killed
        return answer


@pytest.mark.parametrize("arrives", [False, True])
async def test_push_that_is_killed_at_any_write_is_not_seen_and_is_continued_by_the_next(
    server: AppConfigServer, source: AppConfigSource, store: AppConfigStore, arrives: bool
) -> None:
    deaths = 0
    for at in range(20):
        server.clear()
        await pushed(store, FIRST)
        async with source.open() as registry:
            good = registry.snapshot()
            async with DyingStore(store, at, arrives=arrives) as dying:
                with suppress(Killed):
                    await push(dying, None, await planned(store, SECOND), "ann")
                    break
            deaths += 1
            stored = await read_stored(store, None, Rules())
            is_whole = (
                stored.is_one_state
                and read_sentinel(
                    server.key_values.find(SENTINEL, "test").value  # type: ignore[union-attr]
                ).digest
            )
            await looked(source, registry)
            if not (is_whole and "protocols:FAX:1" in stored.documents):
                assert registry.snapshot().version == good.version, "half a push was taken"
            await pushed(store, SECOND)
            assert await looked(source, registry) == ""
            assert set(registry.snapshot().protocols) == {"SCAN", "FAX"}
            assert set(registry.snapshot().tenants) == {"a"}
    else:
        pytest.fail("the push never ended")
    assert deaths == 6


async def test_push_that_fails_halfway_says_so_in_the_sentinel_and_the_next_one_needs_no_permission(
    server: AppConfigServer, source: AppConfigSource, store: AppConfigStore
) -> None:
    await pushed(store, FIRST)
    async with source.open() as registry:
        plan = await planned(store, SECOND)
        server.put("lucius:tenants:a", "{id: a, max_inflight: 9}", "test")  # By hand, in between.
        with pytest.raises(PushHalted, match="lucius:tenants:a"):
            await push(store, None, plan, "ann")
        assert "a push by ann ended halfway" in await looked(source, registry)
        assert registry.snapshot().tenants["a"].max_inflight is None
        again = await planned(store, SECOND)
        assert push_under_way(again, _now()) is None
        await push(store, None, again, "ann")
        assert await looked(source, registry) == ""
        assert registry.snapshot().tenants["a"].max_inflight == 3


async def test_key_that_is_changed_by_hand_during_a_push_is_noticed(
    server: AppConfigServer, store: AppConfigStore
) -> None:
    await pushed(store, FIRST)
    plan = await planned(store, {**FIRST, "tenants:c": b"id: c"})
    server.put("lucius:tenants:b", "{id: b, max_inflight: 9}", "test")  # Not among those that the push writes.
    with pytest.raises(PushHalted, match="somebody else has changed keys"):
        await push(store, None, plan, "ann")


async def test_store_that_fails_during_a_push_ends_it_halfway(server: AppConfigServer, store: AppConfigStore) -> None:
    await pushed(store, FIRST)
    plan = await planned(store, SECOND)
    server.faults.writes_left = 2
    with pytest.raises(PushHalted, match="503"):
        await push(store, None, plan, "ann")
    server.faults.clear()
    found = await planned(store, SECOND)
    assert push_under_way(found, _now()), "it could not say that it ended, so it may still be running"
    await push(store, None, found, "ann")
    assert (await planned(store, SECOND)).is_empty


async def test_throttled_push_waits_as_long_as_it_is_told(
    server: AppConfigServer, store: AppConfigStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        server.faults.throttled_seconds = None

    plan = await planned(store, FIRST)
    monkeypatch.setattr(pushing_module, "_pause", pause)
    server.faults.throttled_seconds = 7.0
    await push(store, None, plan, "ann")
    assert waits == [7.0]
    server.faults.throttled_seconds = pushing_module.THROTTLED_SECONDS_MAX + 1
    with pytest.raises(PushRefused, match="429"):
        await push(store, None, await planned_again(store, server), "ann")


async def planned_again(store: AppConfigStore, server: AppConfigServer) -> PushPlan:
    throttled, server.faults.throttled_seconds = server.faults.throttled_seconds, None
    try:
        return await planned(store, SECOND)
    finally:
        server.faults.throttled_seconds = throttled


async def test_interrupted_push_says_so(server: AppConfigServer, store: AppConfigStore) -> None:
    plan = await planned(store, FIRST)
    server.faults.slow_seconds = 0.2
    pushing = asyncio.create_task(push(store, None, plan, "ann"))
    async with asyncio.timeout(20):
        # The sentinel and a key: the push has learned that its sentinel was written.
        while len(list(server.key_values)) < 2:
            await asyncio.sleep(0.01)
    pushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pushing
    server.faults.clear()
    found = server.key_values.find(SENTINEL, "test")
    assert found is not None
    assert read_sentinel(found.value).halted == "it was interrupted"


async def test_large_document_goes_to_a_blob_and_comes_back(
    server: AppConfigServer, store: AppConfigStore, azurite: Azurite
) -> None:
    documents = {"protocols:SCAN:1": f"{PROTOCOL}description: {'x' * VALUE_BYTES_MAX}\n".encode()}
    with pytest.raises(PushRefused, match="LUCIUS_REGISTRY_CONTAINER"):
        await pushed(store, documents)
    assert list(server.key_values) == []
    async with BlobAccount.connected(azurite.connection) as account:
        container = f"push-{uuid4().hex}"
        await account.create_container(container)
        blobs = BlobDocuments(account, container)
        await pushed(store, documents, blobs)
        assert (await read_stored(store, blobs, Rules())).documents == documents
        assert (await planned(store, documents, blobs)).is_empty
        (name,) = await account.names(container, "", 10)
        await account.delete(container, name)
        lost = await planned(store, documents, blobs)
        assert lost.differences[0].before != documents["protocols:SCAN:1"]
        await push(store, blobs, lost, "ann")
        assert (await planned(store, documents, blobs)).is_empty, "another push brings a lost blob back"


async def test_keys_that_are_none_of_the_registrys_are_removed_and_others_left(
    server: AppConfigServer, store: AppConfigStore
) -> None:
    server.put("lucius:protocol:X:1", "id: X", "test")
    server.put("lucius:tenants:z", "id: z", "other label")
    server.put("app:setting", "1", "test")
    await pushed(store, FIRST)
    assert {(one.key, one.label) for one in server.key_values} == {
        *((key_of(identity), "test") for identity in FIRST),
        (SENTINEL, "test"),
        ("lucius:tenants:z", "other label"),
        ("app:setting", "test"),
    }


async def test_history_tells_who_pushed_what_and_what_did_not_end(
    server: AppConfigServer, store: AppConfigStore
) -> None:
    assert await read_history(store, 20) == []
    await pushed(store, FIRST)
    server.put(SENTINEL, "2026-11-18", "test")
    async with DyingStore(store, 2, arrives=True) as dying:
        with suppress(Killed):
            await push(dying, None, await planned(store, SECOND), "bob")
    await pushed(store, SECOND)
    found = await read_history(store, 20)
    assert [(one.outcome, one.by) for one in found] == [
        ("pushed", "ann"),
        ("unfinished", "bob"),
        ("by hand", ""),
        ("pushed", "ann"),
    ]
    assert found[3].summary == "3 added: protocols:SCAN:1, tenants:a, tenants:b"
    assert found[2].summary == "2026-11-18"
    assert len(await read_history(store, 2)) == 2


def _now() -> datetime:
    return datetime.now(UTC)
