"""A rehearsal in a process of its own: the server's work goes on meanwhile, and one that takes too long can be ended.

Reads a `RehearsalTask` from its input and writes a `RehearsalDone`, both as JSON.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.rehearsal.behaviour import BehaviourInvalid, read_behaviour
from lucius.runbooks.rehearsal.inside import RehearsalFailed
from lucius.runbooks.rehearsal.members import csv_members, made_up_members
from lucius.runbooks.rehearsal.rehearsal import rehearse
from lucius.runbooks.rehearsal.report import Report, to_json
from lucius.runbooks.rehearsal.task import MISSES_KEPT_MAX, RehearsalDone, RehearsalTask, read_task
from lucius.runbooks.rehearsal.windows import usual_start
from lucius.runbooks.sources.limits import SourceError


def main() -> None:
    task = read_task(sys.stdin.buffer.read())
    try:
        done = RehearsalDone(report=_shown(asyncio.run(_rehearse(task))))
    except SourceError as error:
        done = RehearsalDone(code="MEMBERS_INVALID", error="; ".join(map(str, error.faults or [error]))[:2_000])
    except (BehaviourInvalid, RehearsalFailed, RunbookInvalid) as error:
        done = RehearsalDone(code="ENVELOPE_INVALID", error=str(error)[:2_000])
    sys.stdout.buffer.write(msgspec.json.encode(done))


async def _rehearse(task: RehearsalTask) -> Report:
    content = task.yaml.encode()
    runbook = read_runbook(content, of_files=task.of_files)
    start = task.start
    has_times = runbook.source is not None and runbook.source.batch_time_column is not None
    if start is None and (task.csv is None or not has_times):
        start = usual_start(runbook, task.now)
    if task.csv is None:
        members = made_up_members(runbook, task.count, start or 0)
    else:
        members = csv_members(task.csv.encode(), runbook, start)
    if len(members.members) > task.members_max:
        raise RehearsalFailed(
            f"{len(members.members)} members are more than the server rehearses ({task.members_max}):"
            " use 'lucius runbook rehearse'"
        )
    behaviour = read_behaviour(b"{}", task.options)
    return await rehearse(content, members, start, behaviour, task.seed, of_files=task.of_files)


def _shown(report: Report) -> object:
    shown = to_json(report)
    shown["members_missing"] = report.members_missing
    shown["miss_count"] = len(report.misses)
    shown["misses"] = shown["misses"][:MISSES_KEPT_MAX]
    return shown


if __name__ == "__main__":
    main()
