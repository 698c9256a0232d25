"""Conformance suite for stores of sightings. Provide a fixture `workers`, an open and empty store."""

from __future__ import annotations

from typing import Any

from lucius.ports.workers import Sighting, WorkerKind, Workers


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
