"""Any message handled one to three times, in any order, gives the same end; see `any_order` for what that means."""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

import pytest
from any_order import Telling
from harness import Harness, open_harness
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.long_form import sized

from lucius.sql.postgres import PostgresDatabase
from lucius.sql.schema import upgrade
from lucius.sql.volatile import VolatileDatabase
from lucius.testing.samples import ManualClock


async def told(random: Random | None) -> dict[str, Any]:
    async with VolatileDatabase() as database:
        await upgrade(database)
        async with open_harness(database) as harness:
            return await Telling([harness], random).tell()


@cache
def plain() -> dict[str, Any]:
    return asyncio.run(told(None))


def test_the_plain_run_is_the_story() -> None:
    ending = plain()
    assert ending["batches"] == [(1, "failed", "phases failed: one, two")]
    assert ending["phases"] == [("one", "failed"), ("two", "failed")]
    assert ending["members"] == [
        ("m0", "active", 0), ("m1", "active", 1), ("m2", "active", 0), ("m3", "removed", 0), ("m4", "active", 0),
    ]  # fmt: skip
    assert {(row[0], row[3]): row[4] for row in ending["steps"]} == {
        ("m0", "a"): "succeeded", ("m0", "b"): "succeeded", ("m0", "c"): "succeeded",
        ("m1", "a"): "succeeded", ("m1", "b"): "rolled_back", ("m1", "c"): "cancelled",
        ("m2", "a"): "succeeded", ("m2", "b"): "succeeded", ("m2", "c"): "succeeded",
        ("m3", "a"): "cancelled", ("m3", "b"): "cancelled",
        ("m4", "a"): "succeeded", ("m4", "b"): "succeeded", ("m4", "c"): "succeeded",
    }  # fmt: skip
    assert ending["open"] == []


@settings(max_examples=sized(25, 200), deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32))
def test_messages_one_to_three_times_in_any_order_give_the_same_end(seed: int) -> None:
    assert asyncio.run(told(Random(seed))) == plain()


@pytest.fixture
def plain_ending() -> dict[str, Any]:
    """Before the test's own event loop runs."""
    return plain()


@pytest.mark.parametrize("seed", range(4))
async def test_two_orchestrators_at_once_give_the_same_end(
    plain_ending: dict[str, Any], postgres_url: str, seed: int
) -> None:
    clock = ManualClock()
    async with (
        PostgresDatabase(postgres_url, pool_max=4) as one,
        PostgresDatabase(postgres_url, pool_max=4) as other,
        open_harness(one, clock) as first,
        open_harness(other, clock) as second,
    ):
        stands: list[Harness] = [first, second]
        assert await Telling(stands, Random(seed)).tell() == plain_ending
