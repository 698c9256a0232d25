"""Recorded histories replay: the workflow of today takes the same way as the one that made them.

They are made by `record_histories.py`, which says when to run it and when not to.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from tests.temporal.shapes import HISTORIES, INSIDE, OUTSIDE, read_history

from lucius.engines.temporal.messages import DATA_CONVERTER, WORKFLOW, JobEnd, JobStart, Recorded
from lucius.engines.temporal.worker import workflow_runner
from lucius.engines.temporal.workflow import JobWorkflow

SHAPES = frozenset(OUTSIDE | INSIDE)
REPLAY_SECONDS_MAX = 60
FILES = sorted(HISTORIES.glob("*.json"))


def shape_of(path: Path) -> str:
    """A job that went on as a new run has a file for each run: `continued_1`, `continued_2`."""
    name, _, number = path.stem.rpartition("_")
    return name if number.isdigit() else path.stem


async def replay(history: WorkflowHistory, kind: type = JobWorkflow, runner: WorkflowRunner | None = None) -> None:
    replayer = Replayer(workflows=[kind], workflow_runner=runner or workflow_runner(), data_converter=DATA_CONVERTER)
    await asyncio.wait_for(replayer.replay_workflow(history), REPLAY_SECONDS_MAX)


def test_every_shape_has_its_history() -> None:
    assert {shape_of(path) for path in FILES} == SHAPES


def test_the_runs_of_a_continued_job_are_all_there() -> None:
    runs = [read_history(path) for path in FILES if shape_of(path) == "continued"]
    assert len(runs) >= 2
    ends = [EventType.Name(run.events[-1].event_type).removeprefix("EVENT_TYPE_WORKFLOW_EXECUTION_") for run in runs]
    assert ends == ["CONTINUED_AS_NEW"] * (len(runs) - 1) + ["COMPLETED"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_recorded_history_replays(path: Path) -> None:
    """In the sandbox, which refuses what would not be the same again: clocks, randomness, I/O."""
    assert isinstance(workflow_runner(), SandboxedWorkflowRunner)
    await replay(read_history(path))


# --- That it would be noticed ----------------------------------------------------------------------------------------


def recorded_in(history: WorkflowHistory) -> list[Recorded]:
    """What the local activities answered, from their markers."""
    answers = []
    for event in history.events:
        if event.event_type != EventType.EVENT_TYPE_MARKER_RECORDED:
            continue
        details = event.marker_recorded_event_attributes.details
        answers += DATA_CONVERTER.payload_converter.from_payloads(details["result"].payloads, [Recorded])
    return answers


@pytest.mark.parametrize("name", ["ledger_ahead", "ledger_ahead_inside"])
def test_the_history_of_a_ledger_ahead_is_one(name: str) -> None:
    assert any(answer.ahead for answer in recorded_in(read_history(HISTORIES / f"{name}.json")))


@pytest.mark.parametrize("name", ["ledger_ahead_with_events", "ledger_ahead_with_events_inside"])
def test_the_history_of_a_ledger_ahead_with_events_is_one(name: str) -> None:
    recorded = recorded_in(read_history(HISTORIES / f"{name}.json"))
    assert [{event.type for event in answer.events} for answer in recorded if answer.ahead] == [
        {"RESULT", "ATTEMPT_CREATED"} if "inside" not in name else {"RESULT", "ATTEMPT_CREATED", "PUBLISHED"}
    ]


@pytest.mark.parametrize("name", ["publish_refused", "refused_inside"])
def test_the_history_of_a_refused_directive_is_one(name: str) -> None:
    assert any(answer.refused for answer in recorded_in(read_history(HISTORIES / f"{name}.json")))


def test_the_history_of_a_bus_that_was_away_is_one() -> None:
    assert any(answer.is_deferred for answer in recorded_in(read_history(HISTORIES / "bus_away.json")))


@workflow.defn(name=WORKFLOW)
class SleepsFirst(JobWorkflow):
    """As it might be after a careless change: it waits a moment before it writes."""

    @workflow.init
    def __init__(self, start: JobStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: JobStart) -> JobEnd:
        return await super().run(start)

    async def _hand(self, name: str, argument: Any, result_type: type) -> Any:
        await asyncio.sleep(0.01)
        return await super()._hand(name, argument, result_type)


@workflow.defn(name=WORKFLOW)
class WritesOtherwise(SleepsFirst):
    """As it might be after another one: the same steps under another name."""

    @workflow.init
    def __init__(self, start: JobStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: JobStart) -> JobEnd:
        return await super().run(start)

    async def _hand(self, name: str, argument: Any, result_type: type) -> Any:
        return await JobWorkflow._hand(self, "restore" if name == "project" else name, argument, result_type)


@pytest.mark.parametrize("changed", [SleepsFirst, WritesOtherwise])
async def test_replay_notices_a_workflow_that_goes_another_way(changed: type) -> None:
    history = read_history(HISTORIES / "success.json")
    await replay(history, runner=UnsandboxedWorkflowRunner())
    with pytest.raises(workflow.NondeterminismError):
        await replay(history, changed, UnsandboxedWorkflowRunner())


async def test_replay_notices_a_history_in_another_order() -> None:
    """The work of the first two activities, exchanged."""
    history = read_history(HISTORIES / "success.json")
    events = list(history.events)
    markers = [at for at, event in enumerate(events) if event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED]
    first, second = markers[:2]
    here, there = events[first].marker_recorded_event_attributes, events[second].marker_recorded_event_attributes
    kept = type(here)()
    kept.CopyFrom(here)
    here.CopyFrom(there)
    there.CopyFrom(kept)
    with pytest.raises(workflow.NondeterminismError):
        await replay(WorkflowHistory(history.workflow_id, events))
