"""Calls that the server holds open: capped per principal and in all, released however they end, and never answered to a
credential that has ended meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.api.event_streams import Stream, follow

from lucius.settings import Settings
from lucius.usecases.query import LOOKS_PER_SECOND_MAX
from lucius.usecases.waits import RETRY_AFTER_SECONDS

ROLES = {"greedy": ["read", "work"], "modest": ["read", "submit", "work"]}
GONE_SECONDS_MAX = 30.0
"""A credential is looked at again every few seconds; the rest is for a busy machine."""


def key_of(name: str) -> str:
    return f"lk_the_key_of_{name}_0123456789"


def write_keys(path: Path, keys: dict[str, list[str]], tenants: Any = "*") -> None:
    entries = [
        {"name": name, "sha256": hashlib.sha256(key_of(name).encode()).hexdigest(), "tenants": tenants, "roles": roles}
        for name, roles in keys.items()
    ]
    path.write_text(json.dumps(entries))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    write_keys(path, ROLES)
    return path


@pytest.fixture
def open_capped(open_api: Any, key_file: Path) -> Callable[..., Awaitable[Any]]:
    async def open_(**settings: Any) -> Any:
        return await open_api(api_keys_file=str(key_file), **settings)

    return open_


def in_an_hour() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3_600))


def held(api: Any) -> dict[str, int]:
    return {kind.value: count for kind, count in api.context.waits.held.items()}


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(GONE_SECONDS_MAX):
        while not look():
            await asyncio.sleep(0.02)


async def followed(stack: AsyncExitStack, api: Any, job_id: str) -> Stream:
    stream = await stack.enter_async_context(follow(api, job_id))
    assert await stream.event(), "it has begun"
    assert stream.status == 200
    return stream


# --- Caps ------------------------------------------------------------------------------------------------------------


def test_defaults_let_a_hundred_replicas_pull_and_leave_room_for_everybody_else() -> None:
    defaults = Settings()
    assert defaults.waits_per_principal_max >= 100 * 5, "a hundred replicas, several long polls each"
    assert defaults.waits_per_principal_max + defaults.streams_per_principal_max <= defaults.connections_max / 2
    assert defaults.waits_max + defaults.streams_max <= defaults.connections_max * 0.8
    assert defaults.waits_per_principal_max < defaults.waits_max
    assert defaults.streams_per_principal_max < defaults.streams_max


async def test_streams_of_one_principal_are_capped_and_another_is_served(open_capped: Any) -> None:
    api = await open_capped(streams_per_principal_max=20, streams_max=50, waits_per_principal_max=3)
    greedy, modest = api.with_key(key_of("greedy")), api.with_key(key_of("modest"))
    job_id = await api.accepted()
    async with AsyncExitStack() as stack:
        for _ in range(20):
            await followed(stack, greedy, job_id)
        for _ in range(3):
            answer = await greedy.client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
            problem = api.assert_problem(answer, 429, "WAITS_SATURATED")
            assert "20 streams" in problem["detail"]
            assert answer.headers["retry-after"] == f"{RETRY_AFTER_SECONDS:.0f}"
        assert len(await greedy.events(job_id)) == 3, "the trail itself can still be read"

        await followed(stack, modest, job_id)
        assert len(await modest.pull(wait_seconds=5)) == 1
        assert (await modest.job(job_id, wait_seconds=0.2))["status"] == "IN_PROGRESS"
        await modest.accepted()
        assert held(api) == {"wait": 0, "stream": 21}
    assert held(api) == {"wait": 0, "stream": 0}, "whoever hangs up makes room"
    async with AsyncExitStack() as stack:
        await followed(stack, greedy, job_id)


async def test_long_polls_and_waits_of_one_principal_share_a_cap_and_another_is_served(open_capped: Any) -> None:
    api = await open_capped(waits_per_principal_max=3, waits_max=8)
    greedy, modest = api.with_key(key_of("greedy")), api.with_key(key_of("modest"))
    job_id = await api.accepted(not_before=in_an_hour())
    waiting = [
        asyncio.create_task(greedy.pull(wait_seconds=50)),
        asyncio.create_task(greedy.pull(wait_seconds=50)),
        asyncio.create_task(greedy.job(job_id, wait_seconds=50)),
    ]
    await until(lambda: held(api)["wait"] == 3)
    pull = {"service": "ocr", "wait_seconds": 5}
    api.assert_problem(await greedy.client.post("/v1/directives:pull", json=pull), 429, "WAITS_SATURATED")
    worker = {"workerId": "nobody", "wait_seconds": 5}
    api.assert_problem(await greedy.client.post("/v1/worker-jobs:pull", json=worker), 429, "WAITS_SATURATED")
    answer = await greedy.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 5})
    api.assert_problem(answer, 429, "WAITS_SATURATED")

    assert await greedy.pull(wait_seconds=0) == [], "what does not wait is not counted"
    assert (await greedy.job(job_id))["status"] == "QUEUED"
    assert await modest.pull(wait_seconds=0.1) == []
    assert (await modest.job(job_id, wait_seconds=0.1))["status"] == "QUEUED"
    async with AsyncExitStack() as stack:
        await followed(stack, greedy, job_id)
    api.context.stopping.set()
    await asyncio.gather(*waiting)
    assert held(api) == {"wait": 0, "stream": 0}, "a server that stops gives every slot back"


@pytest.mark.parametrize("settings", [{"waits_max": 4}, {"connections_max": 5}], ids=["waits_max", "connections_max"])
async def test_waits_are_capped_in_all(open_capped: Any, settings: dict[str, int]) -> None:
    """Whatever the caps say, a fifth of the connections is left to calls that do not wait."""
    api = await open_capped(**settings)
    callers = [api.with_key(key_of(name)) for name in ("greedy", "modest")] * 2
    waiting = [asyncio.create_task(caller.pull(wait_seconds=50)) for caller in callers]
    await until(lambda: held(api)["wait"] == 4)
    pull = {"service": "ocr", "wait_seconds": 5}
    problem = api.assert_problem(await api.client.post("/v1/directives:pull", json=pull), 429, "WAITS_SATURATED")
    assert "this server" in problem["detail"]
    await api.accepted()
    api.context.stopping.set()
    await asyncio.gather(*waiting)


async def test_slot_is_given_back_when_a_wait_fails_or_is_cancelled(
    open_capped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = await open_capped(waits_per_principal_max=1)
    unknown = "018f6b1e-7c00-7000-8000-0123456789ab"
    for _ in range(3):
        answer = await api.client.get(f"/v1/jobs/{unknown}", params={"wait_seconds": 5})
        api.assert_problem(answer, 404, "JOB_NOT_FOUND")
    for call in (api.pull(wait_seconds=50), api.job(await api.accepted(), wait_seconds=50)):
        await api.pull(wait_seconds=0)
        waiting = asyncio.create_task(call)
        await until(lambda: held(api)["wait"] == 1)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert held(api)["wait"] == 0

    async def broken(*arguments: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(api.context.bus, "receive", broken)
    answer = await api.client.post("/v1/directives:pull", json={"service": "ocr", "wait_seconds": 5})
    api.assert_problem(answer, 500, "INTERNAL")
    assert held(api) == {"wait": 0, "stream": 0}


async def test_many_followers_look_at_the_ledger_no_more_often_together(
    open_capped: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this process writes is told to them at once; so they need not look often for it, and keep nobody waiting.
    Those who follow the same job look at the same time and share what they read."""
    api = await open_capped()
    job_id = await api.accepted()
    looks, load = 0, api.context.ledger.load

    async def counted(job_ids: Any) -> Any:
        nonlocal looks
        looks += 1
        return await load(job_ids)

    waiting = [asyncio.create_task(api.job(job_id, wait_seconds=50)) for _ in range(400)]
    await until(lambda: held(api)["wait"] == 400)
    await asyncio.sleep(1.0)  # Each has looked once, when it came.
    monkeypatch.setattr(api.context.ledger, "load", counted)
    began = time.monotonic()
    await asyncio.sleep(2.0)
    assert looks <= 0.2 * LOOKS_PER_SECOND_MAX * (time.monotonic() - began)
    began = time.monotonic()
    await api.work()
    jobs = await asyncio.gather(*waiting)
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
    assert api.context.queries.look_seconds(job_id) == api.context.engine.changes_elsewhere_seconds, (
        "nobody follows any more"
    )


async def test_end_between_reading_and_waiting_is_not_missed(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again in this test: only the notification can end the wait."""
    job_id = await api.accepted()
    monkeypatch.setattr(type(api.context.engine), "changes_elsewhere_seconds", 3_600.0)
    queries, is_stale = api.context.queries, []
    find = queries._find

    async def find_and_be_late(asked: str) -> Any:
        found = await find(asked)
        if not is_stale:
            is_stale.append(found)
            await api.work()  # The job ends after it was read.
        return found

    monkeypatch.setattr(queries, "_find", find_and_be_late)
    async with asyncio.timeout(15):
        assert (await api.job(job_id, wait_seconds=30))["status"] == "SUCCEEDED"
    assert not is_stale[0].is_terminal


async def test_saturation_is_counted(open_capped: Any) -> None:
    api = await open_capped(streams_per_principal_max=1)
    job_id = await api.accepted()
    async with AsyncExitStack() as stack:
        await followed(stack, api, job_id)
        await api.client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
        shown = api.context.metrics.render().decode()
    assert 'lucius_waits_held{kind="stream"} 1.0' in shown
    assert 'lucius_waits_refused_total{kind="stream",scope="principal"} 1.0' in shown


# --- Credentials that end --------------------------------------------------------------------------------------------


async def test_stream_ends_when_its_key_is_removed(open_capped: Any, key_file: Path) -> None:
    api = await open_capped()
    job_id = await api.accepted()
    async with AsyncExitStack() as stack:
        greedy = await followed(stack, api.with_key(key_of("greedy")), job_id)
        modest = await followed(stack, api.with_key(key_of("modest")), job_id)
        write_keys(key_file, {"modest": ["read"]})
        assert (await greedy.rest())[-1] == {"event": "problem", "data": "UNAUTHENTICATED"}
        await api.work()
        assert (await modest.rest())[-1]["event"] == "end", "other streams go on"


@pytest.mark.parametrize(
    ("roles", "tenants", "code"), [(["work"], "*", "FORBIDDEN"), (["read"], ["other"], "JOB_NOT_FOUND")]
)
async def test_stream_ends_when_its_role_or_tenant_is_withdrawn(
    open_capped: Any, key_file: Path, roles: list[str], tenants: Any, code: str
) -> None:
    api = await open_capped()
    job_id = await api.accepted()
    async with AsyncExitStack() as stack:
        stream = await followed(stack, api.with_key(key_of("greedy")), job_id)
        write_keys(key_file, {"greedy": roles}, tenants)
        assert (await stream.rest())[-1] == {"event": "problem", "data": code}


async def test_stream_ends_when_its_token_expires(open_api: Any, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
    issuer = {"jwt_issuer": "https://issuer.example", "jwt_audience": "lucius"}
    api = await open_api(**issuer, jwks_url=str(tmp_path / "jwks.json"))
    # It is accepted for half a minute after it has expired, because clocks differ.
    claims = {"iss": issuer["jwt_issuer"], "aud": "lucius", "sub": "somebody", "exp": int(time.time()) - 25}
    token = jwt.encode(claims | {"tenants": ["acme"], "roles": ["read"]}, key, "ES256", {"kid": "one"})
    job_id = await api.accepted()
    async with AsyncExitStack() as stack:
        stream = await followed(stack, api.with_key(token), job_id)
        assert (await stream.rest())[-1] == {"event": "problem", "data": "UNAUTHENTICATED"}


async def test_long_poll_hands_nothing_to_a_key_that_was_removed_meanwhile(open_capped: Any, key_file: Path) -> None:
    api = await open_capped()
    greedy = api.with_key(key_of("greedy"))
    pull = {"service": "ocr", "wait_seconds": 50}
    waiting = asyncio.create_task(greedy.client.post("/v1/directives:pull", json=pull))
    await until(lambda: held(api)["wait"] == 1)
    write_keys(key_file, {"modest": ["work"]})
    await asyncio.sleep(4.5)  # The key file is looked at every two seconds, and a caller every second.
    await api.accepted()
    api.assert_problem(await asyncio.wait_for(waiting, GONE_SECONDS_MAX), 401, "UNAUTHENTICATED")
    assert len(await api.pull(wait_seconds=0)) == 1, "what was taken for it can be taken by others at once"


async def test_wait_tells_nothing_to_a_key_that_was_removed_meanwhile(open_capped: Any, key_file: Path) -> None:
    api = await open_capped()
    job_id = await api.accepted()
    greedy = api.with_key(key_of("greedy"))
    waiting = asyncio.create_task(greedy.client.get(f"/v1/jobs/{job_id}", params={"wait_seconds": 50}))
    await until(lambda: held(api)["wait"] == 1)
    write_keys(key_file, {"modest": ["work"]})
    api.assert_problem(await asyncio.wait_for(waiting, GONE_SECONDS_MAX), 401, "UNAUTHENTICATED")
