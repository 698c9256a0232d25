"""Trial of a runbook: the first rows of its source, and the job of each step. Nothing is written or sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lucius.domain.errors import CallerError
from lucius.domain.time import Instant, iso
from lucius.runbooks.core import answers
from lucius.runbooks.core.definition.durations import show_offset
from lucius.runbooks.core.definition.model import DataSource, Runbook, Step
from lucius.runbooks.core.definition.templates import BATCH_ID, BATCH_START_TIME, UnknownVariable, finish, resolve
from lucius.runbooks.core.definition.variables import known_outputs
from lucius.runbooks.core.due_times import IMMEDIATE_MILLIS, due_at
from lucius.runbooks.core.messages import utc
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.service.csv_members import read_csv_members
from lucius.runbooks.sources import reading
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.rows import read_members
from lucius.runbooks.sources.texts import Unfit, value_text

CELL_CHARS_SHOWN = 1_000
NO_BATCH_ID = 0
"""Shown for `_batch_id`, which exists only once the batch is created."""


class Trial:
    """A trial of one runbook."""

    def __init__(
        self, runbook: Runbook, limits: SourceLimits, environ: Mapping[str, str], own_files: Sequence[Path]
    ) -> None:
        self._runbook = runbook
        self._limits = limits
        self._environ = environ
        self._own_files = own_files

    # --- The source --------------------------------------------------------------------------------------------------

    def _source(self) -> DataSource:
        if self._runbook.source is None:
            detail = f"runbook {self._runbook.name} has no data source: its batches are created from a CSV"
            raise CallerError.of("CONFLICT", detail)
        return self._runbook.source

    async def preview(self, limit: int) -> answers.SourcePreview:
        source = self._source()
        try:
            rows = await reading.preview(source, self._environ, self._limits, self._own_files, limit)
            members = await asyncio.to_thread(read_members, rows, source)
        except SourceError as error:
            raise _source_failed(error) from error
        return {
            "columns": rows.columns,
            "rows": [[_cell(value) for value in row] for row in rows.rows],
            "faults": members.faults,
            "members": len(members.members),
        }

    async def _from_source(self) -> Members:
        try:
            return await reading.read_source_members(self._source(), self._environ, self._limits, self._own_files)
        except SourceError as error:
            raise _source_failed(error) from error

    # --- Dry run ------------------------------------------------------------------------------------------------------

    async def run(
        self, version: int, csv: bytes | None, start: Instant | None, limit: int, now: Instant
    ) -> answers.DryRun:
        """Without a start, a CSV starts now, and a source with its next batch."""
        if csv is not None:
            found = await asyncio.to_thread(read_csv_members, csv, self._runbook, self._limits)
            keys, begins = list(found.members), now if start is None else start
        else:
            found = await self._from_source()
            keys, begins = self._next_batch(found, start, now)
        shown: list[answers.DryRunMember] = [
            {"member": key, "steps": self._steps(self._data(found, key), begins)} for key in keys[:limit]
        ]
        return {
            "name": self._runbook.name,
            "version": version,
            "start": iso(begins),
            "phases": [
                {
                    "name": phase.name,
                    "offset": show_offset(phase.offset_minutes),
                    "due_at": iso(due_at(begins, phase.offset_minutes)),
                }
                for phase in self._runbook.phases
            ],
            "init": [
                self._step("init", index, step, {}, begins, known_outputs(self._runbook, "init", "init", index))
                for index, step in enumerate(self._runbook.init)
            ],
            "members": shown,
            "total_members": len(keys),
        }

    def _next_batch(self, found: Members, start: Instant | None, now: Instant) -> tuple[list[str], Instant]:
        """The members of the next batch, or of the last if all are past."""
        if start is not None:
            return list(found.members), start
        times = {member.batch_time for member in found.members.values() if member.batch_time is not None}
        if not times:
            return list(found.members), now - now % IMMEDIATE_MILLIS
        begins = min((time for time in times if time >= now), default=max(times))
        return [key for key, member in found.members.items() if member.batch_time == begins], begins

    def _data(self, found: Members, key: str) -> dict[str, Any]:
        several = {column.name for column in self._runbook.source.multi_valued} if self._runbook.source else set()
        return {
            column: msgspec.json.decode(value) if column in several and value is not None else value
            for column, value in zip(found.columns, found.members[key].values, strict=True)
        }

    def _steps(self, data: Mapping[str, Any], begins: Instant) -> list[answers.DryRunStep]:
        return [
            self._step(phase.name, index, step, data, begins, known_outputs(self._runbook, "step", phase.name, index))
            for phase in self._runbook.phases
            for index, step in enumerate(phase.steps)
        ]

    def _step(
        self, phase: str, index: int, step: Step, data: Mapping[str, Any], begins: Instant, outputs: frozenset[str]
    ) -> answers.DryRunStep:
        special = {BATCH_ID: NO_BATCH_ID, BATCH_START_TIME: utc(begins)}
        function, fault = step.function, None
        params: dict[str, Any] = {}
        waits_for: list[str] = []
        try:
            resolved = resolve(step, data, special, outputs)
            parts = [part for place in (resolved.late or {}).values() for part in place]
            waits_for = list(dict.fromkeys(part["var"] for part in parts if "var" in part))
            # Output variables that do not exist yet are shown as in the runbook.
            awaited = {name: f"{{{{{name}}}}}" for name in waits_for}
            function, params = finish(resolved.function, resolved.params, resolved.late, awaited)
        except UnknownVariable as error:
            fault = str(error)
        return {
            "phase": phase, "step": step.name, "worker_id": step.worker_id, "function": function, "params": params,
            "waits_for": waits_for, "fault": fault,
        }  # fmt: skip


def _source_failed(error: SourceError) -> CallerError:
    return CallerError.of("SOURCE_FAILED", str(error))


def _cell(value: Any) -> str | None:
    try:
        text = value_text(value)
    except Unfit as unfit:
        return f"({unfit})"
    return text if text is None or len(text) <= CELL_CHARS_SHOWN else text[:CELL_CHARS_SHOWN] + "…"
