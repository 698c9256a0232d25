"""Runbooks by name and version: read once, kept, because a version never changes."""

from __future__ import annotations

from collections import OrderedDict

from lucius.runbooks.definition.model import Runbook, Step
from lucius.runbooks.definition.reading import read_runbook
from lucius.runbooks.execution import Execution
from lucius.sql.database import Fetch, Script

KEPT_MAX = 256

_YAML = "SELECT yaml_content FROM runbooks WHERE name = $1 AND version = $2"


class RunbookMissing(Exception):
    """A row names a version that is not there."""


class Definitions:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Runbook] = OrderedDict()

    def get(self, name: str, version: int) -> Script[Runbook]:
        key = (name, version)
        found = self._kept.get(key)
        if found is None:
            rows = yield Fetch(_YAML, key)
            if not rows:
                raise RunbookMissing(f"runbook {name} has no version {version}")
            found = read_runbook(rows[0][0].encode())
            self.keep(version, found)
        return found

    def keep(self, version: int, runbook: Runbook) -> None:
        """One that was just read and published, so that no transaction has to wait for its parser again."""
        self._kept[runbook.name, version] = runbook
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)


def step_of(runbook: Runbook, execution: Execution) -> Step:
    """The definition that an execution was made from."""
    if execution.kind == "step":
        return runbook.phase(execution.list_name).steps[execution.step_index]
    if execution.kind == "init":
        return runbook.init[execution.step_index]
    if execution.kind == "removal":
        return runbook.on_member_removed[execution.step_index]
    return runbook.rollbacks[execution.list_name][execution.step_index]
