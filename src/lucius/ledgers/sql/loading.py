"""Loading jobs: their documents, and the policies and large outputs that these refer to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from lucius.domain.job import Job
from lucius.domain.protocol import Policy
from lucius.ledgers.sql import rows, spec_document, statements
from lucius.ports.ledger import Change, UnreadableJob
from lucius.sql.database import Fetch, Row, Script

T = TypeVar("T")


class Policies:
    """Policies that are known to be in the ledger, where they are never changed or removed."""

    def __init__(self) -> None:
        self._by_id: dict[str, Policy] = {}

    def new_in(self, changes: Sequence[Change]) -> dict[str, Policy]:
        """Of the jobs that these changes create, the policies not yet known to be there."""
        found = rows.policies_of([change.after for change in changes if change.before is None])
        return {policy_id: policy for policy_id, policy in found.items() if policy_id not in self._by_id}

    def add(self, policies: Mapping[str, Policy]) -> None:
        if len(self._by_id) + len(policies) > spec_document.POLICIES_REMEMBERED_MAX:
            self._by_id.clear()
        self._by_id.update(policies)

    def read_script(self, policy_ids: set[str]) -> Script[dict[str, Policy]]:
        """Those of these policies that can be read."""
        found = {policy_id: self._by_id[policy_id] for policy_id in policy_ids if policy_id in self._by_id}
        missing = sorted(policy_ids - found.keys())
        if missing:
            for row in (yield Fetch(statements.LOAD_POLICIES, [missing])):
                read = read_or_report(row[0], "", partial(spec_document.decode_policy, row[1]))
                if isinstance(read, Policy):
                    found[row[0]] = read
            self.add(found)
        return found


def load_script(job_ids: Sequence[str], policies: Policies) -> Script[list[Job | UnreadableJob]]:
    """Those of these jobs that exist, in any order."""
    found = yield Fetch(statements.LOAD_JOBS, [list(job_ids)])
    opened = [read_or_report(row[0], row[1], partial(rows.read_documents, row)) for row in found]
    loaded = [one for one in opened if isinstance(one, rows.Loaded)]
    known = yield from policies.read_script({step.policy_id for one in loaded for step in one.spec.steps})
    outputs: dict[str, dict[int, tuple[str, str]]] = {}
    with_outputs = [one.row[0] for one in loaded if one.has_outputs_outside]
    if with_outputs:
        for row in (yield Fetch(statements.LOAD_OUTPUTS, [with_outputs])):
            outputs.setdefault(row[0], {})[row[1]] = (row[2], row[3])
    return [one if isinstance(one, UnreadableJob) else _read(one, known, outputs.get(one.row[0], {})) for one in opened]


def _read(
    loaded: rows.Loaded, policies: dict[str, Policy], outputs: Mapping[int, tuple[str, str]]
) -> Job | UnreadableJob:
    row: Row = loaded.row
    return read_or_report(row[0], row[1], partial(rows.read_job, loaded, policies, outputs))


def read_or_report(job_id: str, tenant_id: str, read: Callable[[], T]) -> T | UnreadableJob:
    """The result of `read`, or a report that it failed: the other jobs of the same call are still returned."""
    try:
        return read()
    except rows.UNREADABLE as error:
        return UnreadableJob(job_id, tenant_id, f"{type(error).__name__}: {error}")
