"""The columns of a batch: every step of every phase that has begun or will begin."""

from __future__ import annotations

from msgspec import Struct

from lucius.ports.database import Script
from lucius.runbooks.core.records import Batch
from lucius.runbooks.store import phases
from lucius.runbooks.store.definitions import Definitions


class Column(Struct, frozen=True):
    phase_id: int
    phase: str
    phase_status: str
    version: int
    step_index: int
    step: str


def columns_of(batch: Batch, definitions: Definitions) -> Script[list[Column]]:
    """In the order of phases and steps."""
    found = []
    for phase in (yield from phases.of_batch(batch.id)):
        runbook = yield from definitions.get(batch.runbook_name, phase.version)
        for index, step in enumerate(runbook.phase(phase.name).steps):
            found.append(Column(phase.id, phase.name, phase.status, phase.version, index, step.name))
    return found
