"""The grid of a batch: whole, or what has changed since a number."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from lucius.ports.database import Script
from lucius.runbooks.core import answers
from lucius.runbooks.core.grid import NO_STEP
from lucius.runbooks.core.records import Batch
from lucius.runbooks.core.states import SKIPPED
from lucius.runbooks.service.views.batches import batch_exists
from lucius.runbooks.service.views.columns import Column, columns_of
from lucius.runbooks.store import batch_changes, grid
from lucius.runbooks.store.batch_changes import Changed
from lucius.runbooks.store.definitions import Definitions


def read_grid(batch_id: int, since: int | None, definitions: Definitions) -> Script[answers.Grid]:
    """Whole without `since`, and also if what has changed since then is no longer known."""
    batch = yield from batch_exists(batch_id)
    number = batch.change_number
    columns = [one for one in (yield from columns_of(batch, definitions)) if one.phase_status != SKIPPED]
    if since:
        changed = yield from batch_changes.between(batch_id, since, number)
        if changed is not None:
            return (yield from _changes(batch, columns, changed))
    return (yield from _whole(batch, columns))


def _whole(batch: Batch, columns: list[Column]) -> Script[answers.Grid]:
    every = yield from grid.members(batch.id)
    blocks = []
    for phase_id, steps in groupby(columns, attrgetter("phase_id")):
        blocks.append(((yield from grid.cells_of_phase(phase_id)), len(list(steps))))
    rows = []
    for member in every:
        for cells, count in blocks:
            rows.append(cells.get(member.id, "").ljust(count, NO_STEP)[:count])
    return {
        "batch_id": batch.id, "number": batch.change_number, "whole": True,
        "columns": [{"phase": one.phase, "version": one.version, "step": one.step} for one in columns],
        "member_ids": [member.id for member in every],
        "member_keys": [member.key for member in every],
        "member_states": "".join(member.state for member in every),
        "cells": "".join(rows),
    }  # fmt: skip


def _changes(batch: Batch, columns: list[Column], changed: Changed) -> Script[answers.Grid]:
    named = yield from grid.members_by_ids(sorted(changed.members))
    places = {(one.phase_id, one.step_index): place for place, one in enumerate(columns)}
    found = yield from grid.cells(sorted(changed.steps), sorted(changed.members))
    shown = [(one, places[one.phase_id, one.step_index]) for one in found if (one.phase_id, one.step_index) in places]
    return {
        "batch_id": batch.id, "number": batch.change_number, "whole": False,
        "member_ids": [member.id for member in named],
        "member_keys": [member.key for member in named],
        "member_states": "".join(member.state for member in named),
        "cells": "".join(one.cell for one, _ in shown),
        "cell_members": [one.member_id for one, _ in shown],
        "cell_columns": [place for _, place in shown],
    }  # fmt: skip
