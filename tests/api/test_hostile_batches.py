"""Batches that are made to cost much: they are counted before they are parsed, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw
from tests.attack.http_floods import HOSTILE_BATCHES, MIB
from tests.attack.http_probe import forget_peak, rss_mib

from lucius.api.batch_items import LARGE_BYTES, split, split_resting
from lucius.domain.errors import CallerError

STALL_SECONDS_MAX = 0.5
"""Of processor time, so that other programs do not count. Far above what it takes, far below what it took (7.6)."""
MEMORY_MIB_MAX = 150
"""Bodies of 4 to 8 MiB, some copies of them, and what the probe itself needs; it took 1,500."""


@asynccontextmanager
async def bounded() -> AsyncIterator[None]:
    """What is called inside blocks the loop for no long time and takes little memory.

    The objects that thousands of tests before this one left in the process are kept from the garbage collector, as
    the server keeps its own from it: walking through them alone can take half a second.
    """
    longest = 0.0

    async def probe() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    gc.collect()
    gc.freeze()
    forget_peak(os.getpid())
    before = rss_mib(os.getpid())
    probing = asyncio.create_task(probe())
    await asyncio.sleep(0.01)
    try:
        yield
    finally:
        await asyncio.sleep(0.01)
        probing.cancel()
        gc.unfreeze()
    assert longest < STALL_SECONDS_MAX, f"the loop was blocked for {longest:.2f} s"
    assert rss_mib(os.getpid(), most=True) - before < MEMORY_MIB_MAX


@pytest.mark.parametrize("shape", HOSTILE_BATCHES)
async def test_callbacks_of_any_shape_block_nobody(api: Any, shape: str) -> None:
    async with bounded():
        answer = await api.post_raw(HOSTILE_BATCHES[shape], "/v1/callbacks:batch")
    assert answer.status_code in (200, 400, 422), answer.text


@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/callbacks:batch", "callbacks"), ("/v1/commands:batch", "commands"), ("/v1/worker-results", "results")],
)
@pytest.mark.parametrize("unit", [b"0,", b"{},", b"[],", b'{"a":[0]},'])
async def test_batch_of_too_many_items_is_refused_before_they_are_parsed(
    api: Any, path: str, name: str, unit: bytes
) -> None:
    size = (8 if name == "commands" else 4) * MIB - 100
    body = b'{"%s":[' % name.encode() + unit * (size // len(unit)) + unit[:-1] + b"]}"
    async with bounded():
        answer = await api.post_raw(body, path)
    problem = api.assert_problem(answer, 422, "ENVELOPE_INVALID", f"/{name}")
    assert "more than 500" in problem["detail"]


@pytest.mark.parametrize(("name", "count_max"), [("callbacks", 500), ("members", 3)])
def test_items_after_the_first_too_many_are_not_looked_at(name: str, count_max: int) -> None:
    """Also not those that are no JSON."""
    full = b"0," * (count_max - 1) + b"0"
    assert len(split(Raw(b"[" + full + b"]"), name, count_max)) == count_max
    with pytest.raises(CallerError, match=f"more than {count_max}"):
        split(Raw(b"[" + full + b",0,not JSON"), name, count_max)


async def test_large_batch_gives_others_a_turn_between_two_passes_over_it() -> None:
    turns: list[int] = []
    splitting = asyncio.create_task(split_resting(Raw(b'["' + b"x" * LARGE_BYTES + b'"]'), "callbacks", 500))
    while not splitting.done():
        turns.append(1)
        await asyncio.sleep(0)
    assert len(await splitting) == 1
    assert len(turns) > 2


async def test_members_are_counted_before_they_are_parsed(api: Any) -> None:
    body = b'{"members":[' + b'"a",' * (MIB - 5) + b'"b"]}'
    async with bounded():
        for verb in ("retry", "remove"):
            answer = await api.post_raw(body, f"/v1/batches/1:{verb}")
            api.assert_problem(answer, 422, "ENVELOPE_INVALID", "/members")


async def test_500_large_commands_give_others_their_turn(api: Any) -> None:
    filler = "[" + "0," * 7_900 + "0]"
    command = b'{"tenant_id":"acme","payload":{"x":%s}}' % filler.encode()
    async with bounded():
        answer = await api.post_raw(b'{"commands":[' + b",".join([command] * 500) + b"]}", "/v1/commands:batch")
    assert [one["code"] for one in answer.json()["results"]] == ["ENVELOPE_INVALID"] * 500


async def test_large_item_is_refused_alone(api: Any) -> None:
    large = b'{"type":"ACK","note":"' + b"x" * 300_000 + b'"}'
    answer = await api.post_raw(b'{"callbacks":[0,' + large + b",{}]}", "/v1/callbacks:batch")
    assert [one["code"] for one in answer.json()["outcomes"]] == [
        "ENVELOPE_INVALID", "BODY_TOO_LARGE", "ENVELOPE_INVALID",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "item",
    [b'{"tenant_id":"a","tenant_id":"b"}', b'{"x":12345678901234567890123}', b"[" * 40 + b"]" * 40],
    ids=["key twice", "integer", "deep"],
)
async def test_command_that_two_parsers_could_read_differently_is_refused_alone(api: Any, item: bytes) -> None:
    good = json.dumps(api.envelope()).encode()
    answer = await api.post_raw(b'{"commands":[' + good + b"," + item + b"]}", "/v1/commands:batch")
    results = answer.json()["results"]
    assert [one.get("code") for one in results] == [None, "MALFORMED_JSON"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"commands":[{}],"commands":[{}]}',
        b'{"commands":1,"commands":[{}]}',
        b'{"commands":"[","commands":[{}]}',
        b'{"commands":[{}],"c\\u006fmmands":[{}]}',
    ],
)
async def test_commands_given_twice_are_refused(api: Any, body: bytes) -> None:
    api.assert_problem(await api.post_raw(body, "/v1/commands:batch"), 400, "MALFORMED_JSON")
