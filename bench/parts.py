"""The parts of the benchmark, in the order in which they run and stand in the table."""

from __future__ import annotations

from bench import (
    api_processes,
    buses,
    cluster,
    consoles,
    embedded,
    kit,
    large_batch,
    million,
    runbooks,
    tables,
    temporal,
    versions,
)
from bench.part import Part
from bench.peers import comparison

PARTS: tuple[Part, ...] = (
    embedded.PART,
    million.PART,
    kit.PART,
    api_processes.PART,
    runbooks.PART,
    large_batch.PART,
    temporal.PART,
    buses.PART,
    cluster.PART,
    consoles.PART,
    tables.PART,
    comparison.PART,
    versions.PART,
)
