"""Conformance suite for stores of sightings. Provide a fixture `workers`, an open and empty store."""

from __future__ import annotations

from typing import Any

from lucius.ports.workers import Failures, Sighting, WorkerKind, Workers


def sighting(instance: str, last_seen_at: int, **fields: Any) -> Sighting:
    known: dict[str, Any] = {"kind": WorkerKind.SERVICE, "name": "ocr", "first_seen_at": last_seen_at}
    return Sighting(instance=instance, last_seen_at=last_seen_at, **known | fields)


class WorkersSuite:
    async def test_sightings_are_read_as_they_were_written(self, workers: Workers) -> None:
        first = sighting("a", 10, version="1.2", in_work=3)
        second = sighting("a", 20, kind=WorkerKind.WORKER, name="depot")
        await workers.write([])
        await workers.write([first, second])
        assert await workers.newest(10) == [second, first]
        assert await workers.newest(1) == [second]

    async def test_later_sighting_replaces_an_earlier_one_and_keeps_when_it_was_first_seen(
        self, workers: Workers
    ) -> None:
        await workers.write([sighting("a", 10, version="1", in_work=3)])
        await workers.write([sighting("a", 30, version="2", in_work=0)])
        await workers.write([sighting("a", 20, version="1", in_work=9)])
        assert await workers.newest(10) == [sighting("a", 30, first_seen_at=10, version="2", in_work=0)]

    async def test_old_ones_and_too_many_are_forgotten(self, workers: Workers) -> None:
        await workers.write([sighting(str(place), place) for place in range(1, 8)])
        assert await workers.forget(3, 100) == 2
        assert await workers.forget(3, 4) == 1
        assert [one.instance for one in await workers.newest(10)] == ["7", "6", "5", "4"]
        assert await workers.forget(3, 4) == 0

    async def test_failures_add_up_by_instance_and_are_read_since_a_minute(self, workers: Workers) -> None:
        def failed(instance: str, minute: int, failures: int) -> Failures:
            return Failures(kind=WorkerKind.SERVICE, name="ocr", instance=instance, minute=minute, failures=failures)

        await workers.add_failures([])
        await workers.add_failures([failed("a", 1_000, 1), failed("b", 1_001, 5)])
        await workers.add_failures([failed("a", 1_000, 2), failed("a", 1_002, 4)])
        a, b = (WorkerKind.SERVICE, "ocr", "a"), (WorkerKind.SERVICE, "ocr", "b")
        assert await workers.failures(1_000) == {a: 7, b: 5}
        assert await workers.failures(1_001) == {a: 4, b: 5}
        await workers.add_failures([failed("b", 2_000, 1)])
        assert await workers.failures(0) == {b: 1}, "those of earlier hours are gone"
