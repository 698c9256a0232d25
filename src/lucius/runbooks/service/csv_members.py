"""Members from an uploaded CSV: all of them, or every fault and none."""

from __future__ import annotations

from lucius.domain.errors import CallerError, Fault
from lucius.runbooks.core.definition.columns import missing_columns
from lucius.runbooks.core.definition.model import DataSource, Runbook
from lucius.runbooks.core.source_members import Members
from lucius.runbooks.sources.csv_text import read_csv
from lucius.runbooks.sources.limits import SourceError, SourceLimits
from lucius.runbooks.sources.rows import read_members

FAULTS_MAX = 100


def read_csv_members(csv: bytes, runbook: Runbook, limits: SourceLimits) -> Members:
    """A large text takes seconds: call it in a thread. Raises `MEMBERS_INVALID`."""
    several = runbook.source.multi_valued if runbook.source else ()
    by_hand = DataSource(type="csv", connection="", primary_key=runbook.primary_key, multi_valued=several)
    try:
        found = read_members(read_csv(csv, limits), by_hand)
    except SourceError as error:
        faults = [Fault("MEMBERS_INVALID", "/csv", one) for one in error.faults[:FAULTS_MAX]]
        raise CallerError(faults or [Fault("MEMBERS_INVALID", "/csv", str(error))]) from error
    if found.faults:
        raise CallerError([Fault("MEMBERS_INVALID", "/csv", f"{one.place}: {one.message}") for one in found.faults])
    if not found.members:
        raise CallerError.of("MEMBERS_INVALID", "the CSV has no members", "/csv")
    return found


def read_members_to_add(csv: bytes, runbook: Runbook, limits: SourceLimits) -> Members:
    """The same for a batch: every column that a template needs must be there. Raises `MEMBERS_INVALID`."""
    found = read_csv_members(csv, runbook, limits)
    missing = missing_columns(runbook, found.columns, "the CSV")
    if missing:
        raise CallerError([Fault("MEMBERS_INVALID", "/csv", one) for one in missing[:FAULTS_MAX]])
    return found
