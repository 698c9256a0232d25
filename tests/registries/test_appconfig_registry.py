"""The registry in App Configuration beyond the suite: budget, outages, cache, half a push, keys, large documents."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.registries.appconfig_source import AppConfigSource

from lucius.ports.registry import Registry
from lucius.registries.appconfig import AppConfigOptions, AppConfigRegistry, StoreFailed
from lucius.registries.appconfig import registry as registry_module
from lucius.registries.appconfig.keys import SENTINEL, identity_of, key_of
from lucius.registries.appconfig.reading import VALUE_BYTES_MAX, written_setting
from lucius.registries.appconfig.sentinel import SentinelText, digest_of
from lucius.registries.problems import RegistryError
from lucius.testing.appconfig.server import AppConfigServer
from lucius.testing.registry_suite import OTHER, PROTOCOL

KEY = "lucius:protocols:SCAN:1"


@pytest.fixture
async def server() -> AsyncIterator[AppConfigServer]:
    async with AppConfigServer() as running:
        yield running


@pytest.fixture
async def source(server: AppConfigServer, tmp_path: Path) -> AppConfigSource:
    source = AppConfigSource(server, tmp_path / "data" / "cache.json")
    await source.set(protocols__SCAN__1=PROTOCOL)
    server.requests.clear()
    return source


@pytest.fixture(autouse=True)
def _short_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "START_SECONDS", 0.6)
    monkeypatch.setattr(registry_module, "START_WITH_CACHE_SECONDS", 0.6)
    monkeypatch.setattr(registry_module, "RETRY_SECONDS", 0.02)


async def looked(source: AppConfigSource, registry: Registry) -> str:
    """Every problem, after one look that may fail."""
    with suppress(StoreFailed):
        await source.look(registry)
    return "\n".join(map(str, registry.problems))


# The budget of requests.


async def test_only_the_sentinel_is_polled_and_an_unchanged_one_has_no_body(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    async with source.open() as registry:
        assert [(seen.path, seen.status) for seen in server.requests] == [(f"/kv/{SENTINEL}", 200), ("/kv", 200)]
        server.requests.clear()
        for _ in range(5):
            await source.look(registry)
        assert [(seen.path, seen.status) for seen in server.requests] == [(f"/kv/{SENTINEL}", 304)] * 5


async def test_bad_state_is_not_read_again_until_the_sentinel_changes(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    async with source.open() as registry:
        await source.set(globals="x: 1")
        server.requests.clear()
        for _ in range(4):
            assert "lucius:globals, line 1: x is not a known field" in await looked(source, registry)
        assert sum(seen.path == "/kv" for seen in server.requests) == 1


async def test_many_keys_are_read_page_by_page(server: AppConfigServer, source: AppConfigSource) -> None:
    for number in range(230):
        server.put(f"lucius:tenants:t{number}", f"id: t{number}")
    async with source.open() as registry:
        assert len(registry.snapshot().tenants) == 230
    assert sum(seen.path == "/kv" for seen in server.requests) == 3


async def test_throttled_registry_waits_as_long_as_it_is_told(
    server: AppConfigServer, source: AppConfigSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def pause(_: object, seconds: float) -> None:
        waits.append(seconds)
        server.faults.throttled_seconds = {1: 500.0, 2: 90_000.0}.get(len(waits))
        if len(waits) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(AppConfigRegistry, "_pause", pause)
    async with source.open() as registry:
        with pytest.raises(asyncio.CancelledError):
            await registry.watch(30.0)
        assert waits == [30.0, 500.0, registry_module.RETRY_AFTER_SECONDS_MAX, 30.0]


# Outages, and restarts in them.


async def test_outage_and_restart_in_it_leave_the_last_good_state_in_force(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    async with source.open() as registry:
        good = registry.snapshot()
        await server.stop()
        assert "unreachable" in await looked(source, registry)
        assert registry.snapshot() is good
    async with source.open() as restarted:
        assert restarted.snapshot().version == good.version
        text = "\n".join(map(str, restarted.problems))
        assert "unreachable" in text
        assert "started with the cache of 20" in text
        await server.start()
        await source.set(protocols__FAX__1=OTHER)
        assert await looked(source, restarted) == ""
        assert "FAX" in restarted.snapshot().protocols


async def test_start_in_an_outage_without_a_cache_says_what_is_missing(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    await server.stop()
    with pytest.raises(RegistryError, match=r"App Configuration: .*unreachable"):
        async with source.open():
            raise AssertionError("there is nothing to start with")


async def test_restart_with_a_bad_store_uses_the_cache(server: AppConfigServer, source: AppConfigSource) -> None:
    async with source.open() as registry:
        good = registry.snapshot()
    await source.set(protocols__SCAN__1="id: [")
    async with source.open() as registry:
        assert registry.snapshot().version == good.version
        assert KEY in "\n".join(map(str, registry.problems))
        await source.look(registry)
        assert [problem.place for problem in registry.problems] == [KEY], "the store answers, so it is in charge"


@pytest.mark.parametrize(("fault", "said"), [("unauthorized", "access is refused (401)"), ("broken", "status 500")])
async def test_store_that_refuses_is_named_without_secrets(
    server: AppConfigServer, source: AppConfigSource, fault: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with source.open() as registry:
        setattr(server.faults, fault, True)
        text = await looked(source, registry)
        assert said in text
        secret = server.connection_string.rpartition("Secret=")[2]
        assert secret not in text + caplog.text


# The cache.


async def test_cache_is_private_and_not_believed_otherwise(
    server: AppConfigServer, source: AppConfigSource, caplog: pytest.LogCaptureFixture
) -> None:
    async with source.open():
        pass
    assert source.cache.stat().st_mode & 0o777 == 0o600
    assert source.cache.parent.stat().st_mode & 0o777 == 0o700
    await server.stop()
    source.cache.chmod(0o620)
    with caplog.at_level(logging.WARNING, "lucius.registry"), pytest.raises(RegistryError):
        async with source.open():
            raise AssertionError("others could have written this cache")
    assert "must be a file of this user alone" in caplog.text


@pytest.mark.parametrize("harm", ["damaged", "other store", "link"])
async def test_cache_that_is_not_ours_is_not_used(
    server: AppConfigServer, source: AppConfigSource, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with source.open():
        pass
    text = source.cache.read_text()
    if harm == "damaged":
        source.cache.write_text(text.replace("scanner", "scammer"))
    elif harm == "other store":
        source.cache.write_text(text.replace(server.endpoint, "https://elsewhere.azconfig.io"))
    else:
        source.cache.rename(source.cache.with_name("moved"))
        source.cache.symlink_to("moved")
    await server.stop()
    with caplog.at_level(logging.WARNING, "lucius.registry"), pytest.raises(RegistryError):
        async with source.open():
            raise AssertionError("this cache must not be used")
    assert str(source.cache) in caplog.text


async def test_cache_that_cannot_be_written_is_a_warning(
    server: AppConfigServer, source: AppConfigSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    source.cache = tmp_path / "file" / "cache.json"
    with caplog.at_level(logging.WARNING, "lucius.registry"):
        async with source.open() as registry:
            assert registry.problems == ()
    assert "cannot be written" in caplog.text or "cannot be read" in caplog.text
    assert not [name for name in os.listdir(tmp_path) if name.startswith("cache")]


# Half a push.


def sentinel(**fields: str) -> str:
    return SentinelText(**fields).encoded()


async def test_keys_take_effect_only_if_they_match_the_sentinel(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    async with source.open() as registry:
        values = {KEY: PROTOCOL, "lucius:tenants:t": "id: t"}
        server.put(SENTINEL, sentinel(digest=digest_of(values)))
        assert "not those that were pushed" in await looked(source, registry)
        for _ in range(4):
            await looked(source, registry)
        assert sum(seen.path == "/kv" for seen in server.requests) == 1 + registry_module.UNMATCHED_READS_MAX
        await source.put("tenants:t", "id: t")
        server.put(SENTINEL, sentinel(digest=digest_of(values), push_id="2"))
        assert await looked(source, registry) == ""
        assert "t" in registry.snapshot().tenants


async def test_reader_waits_for_a_push_and_tells_one_that_does_not_end(
    server: AppConfigServer, source: AppConfigSource
) -> None:
    async with source.open() as registry:
        await source.put("tenants:t", "id: t")
        now = datetime.now(UTC).isoformat()
        server.put(SENTINEL, sentinel(pushing_since=now, pushed_by="ann"))
        server.requests.clear()
        assert await looked(source, registry) == ""
        assert [seen.path for seen in server.requests] == [f"/kv/{SENTINEL}"]
        assert registry.snapshot().tenants == {}
        server.put(SENTINEL, sentinel(pushing_since="2026-01-01T00:00:00+00:00", pushed_by="ann"))
        assert "a push by ann has been under way since 2026-01-01" in await looked(source, registry)
    source.cache.unlink()
    with pytest.raises(RegistryError, match="a push by ann"):
        async with source.open():
            raise AssertionError("half a push was read")


# Keys, labels, options.


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lucius:protocol:X:1", "id: X", "lucius:protocol:X:1: this is no key of the registry"),
        ("lucius:protocols:SCAN:7", PROTOCOL, "lucius:protocols:SCAN:7, line 1: this is protocols:SCAN:1"),
        ("lucius:tenants:a", "id: b", "lucius:tenants:a, line 1: this is tenants:b"),
        ("lucius:globals", "mode: [", "lucius:globals, line "),
    ],
)
async def test_bad_key_is_named(
    server: AppConfigServer, source: AppConfigSource, key: str, value: str, said: str
) -> None:
    async with source.open() as registry:
        server.put(key, value)
        await source.publish()
        assert said in await looked(source, registry)


async def test_other_labels_and_other_keys_are_not_read(server: AppConfigServer, source: AppConfigSource) -> None:
    server.put("lucius:tenants:t", "id: t", "prod")
    server.put("app:setting", "not YAML: [", None)
    async with source.open() as registry:
        assert registry.snapshot().tenants == {}


def test_keys_hold_every_tenant_id() -> None:
    for identity in ("tenants:100% ~acme~25", "protocols:A.B-c:12", "globals"):
        assert identity_of(key_of(identity)) == identity
        assert "%" not in key_of(identity)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AppConfigOptions(address="appconfig://"), "names no store"),
        (AppConfigOptions(address="appconfig://a/b"), "must be appconfig://NAME"),
        (AppConfigOptions(address="appconfig://", connection="Secret=s3cret"), "must be Endpoint="),
        (AppConfigOptions(address="appconfig://a.io", connection="Endpoint=https://b.io;Id=i;Secret=s"), "another"),
        (AppConfigOptions(address="appconfig://a.io", label="a*"), "LUCIUS_REGISTRY_LABEL"),
    ],
)
def test_options_that_make_no_sense_are_named(options: AppConfigOptions, said: str) -> None:
    fault = options.fault()
    assert fault is not None
    assert said in fault
    assert "s3cret" not in fault


# Large documents.


class Blobs:
    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    async def read(self, name: str) -> bytes:
        if name not in self.content:
            raise StoreFailed(f"blob {name} is missing")
        return self.content[name]

    async def write(self, name: str, content: bytes) -> None:
        self.content[name] = content


async def test_large_document_is_in_a_blob_that_must_be_the_published_one(
    server: AppConfigServer, tmp_path: Path
) -> None:
    blobs = Blobs()
    source = AppConfigSource(server, tmp_path / "cache.json", large=blobs)
    text = PROTOCOL + "description: " + "x" * VALUE_BYTES_MAX
    with pytest.raises(StoreFailed, match="LUCIUS_REGISTRY_CONTAINER"):
        await written_setting(KEY, text.encode(), None)
    setting = await written_setting(KEY, text.encode(), blobs)
    server.put(KEY, setting.value, content_type=setting.content_type)
    await source.publish()
    async with source.open() as registry:
        assert len(registry.snapshot().protocols["SCAN"].description) == VALUE_BYTES_MAX
        (name,) = blobs.content
        blobs.content[name] += b"# tampered"
        await source.publish()
        assert f"{KEY}: the blob {name} is not the one that was published" in await looked(source, registry)
        blobs.content.clear()
        await source.publish()
        assert "is missing" in await looked(source, registry)
        assert "SCAN" in registry.snapshot().protocols
