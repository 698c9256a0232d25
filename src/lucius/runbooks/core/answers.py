"""Runbooks, batches and members as the API shows them. Each class is the OpenAPI component of its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from lucius.domain.json_types import JsonObject, Moment, Page, WholeNumber, ref, stated
from lucius.runbooks.core.definition.compare import Difference
from lucius.runbooks.core.source_members import RowFault
from lucius.runbooks.core.states import MEMBER, PHASE, STEP
from lucius.runbooks.core.verdicts import VERDICTS

ID_MAX = 10**18 - 1


def _counts_of(statuses: Iterable[str]) -> Meta:
    names = list(statuses)
    return stated(required=names, properties={name: {"type": "integer", "minimum": 0} for name in names})


Id = Annotated[int, stated(minimum=1, maximum=ID_MAX)]
BatchStatus = Annotated[str, Meta(extra_json_schema=ref("BatchStatus"))]
Verdict = Annotated[str, stated(enum=list(VERDICTS))]
PhaseStatus = Annotated[str, stated(enum=list(PHASE))]
ExecutionStatus = Annotated[str, stated(enum=list(STEP))]
PhaseCounts = Annotated[dict[str, WholeNumber], _counts_of(PHASE)]
StepCounts = Annotated[dict[str, WholeNumber], _counts_of(STEP)]


# --- Runbooks --------------------------------------------------------------------------------------------------------


class SourceState(TypedDict):
    state: str | None
    detail: str | None
    members: WholeNumber | None
    checked_at: Moment | None


class PublishedVersion(TypedDict):
    version: WholeNumber
    is_active: bool
    overdue_behavior: str
    rerun_init: bool
    created_at: Moment
    created_by: str


RunbookTenant = Annotated[
    str | None, Meta(description="Whose it is, the part of its name before the dot; null: the operator's")
]


class RunbookLine(PublishedVersion):
    name: str
    tenant: RunbookTenant
    automation: bool
    source: SourceState
    open_batches: WholeNumber


class RunbookList(Page):
    items: list[RunbookLine]


class RunbookPublished(TypedDict):
    name: str
    version: WholeNumber
    automation: Annotated[bool, Meta(description="Whether its automation is on")]
    published: Annotated[bool, Meta(description="False if the active version is the same already")]
    unchecked: Annotated[str | None, Meta(description="Why the columns of the source could not be checked")]
    missing_connection: Annotated[
        str | None, Meta(description="The runbook's connection, if the server has no address for it: nothing is read")
    ]


class RunbookActed(TypedDict):
    name: str
    version: NotRequired[WholeNumber]
    retired: NotRequired[bool]
    automation: NotRequired[bool]
    confirmed: NotRequired[Annotated[WholeNumber, Meta(description="Members that the source has now")]]


class RunbookFault(TypedDict):
    line: WholeNumber
    pointer: str
    message: str


class ValidatedPhase(TypedDict):
    name: str
    offset: str
    steps: list[str]


class RunbookValidation(TypedDict):
    valid: bool
    name: NotRequired[str]
    faults: list[RunbookFault]
    phases: list[ValidatedPhase]


class Runbook(TypedDict):
    name: str
    tenant: RunbookTenant
    version: WholeNumber
    yaml: str
    is_active: bool
    automation: bool
    source: SourceState
    versions: list[PublishedVersion]


RunbookDiff = TypedDict(
    "RunbookDiff", {"name": str, "from": WholeNumber, "to": WholeNumber, "differences": list[Difference]}
)


class RunbookEvent(TypedDict):
    id: WholeNumber
    at: Moment
    kind: str
    actor: str
    batch_id: WholeNumber | None
    member: str | None
    detail: JsonObject


class RunbookEventList(Page):
    items: list[RunbookEvent]


# --- Trying a runbook out --------------------------------------------------------------------------------------------


class SourcePreview(TypedDict):
    columns: Sequence[str]
    rows: list[list[str | None]]
    faults: Sequence[RowFault]
    members: WholeNumber


class DryRunPhase(TypedDict):
    name: str
    offset: str
    due_at: Moment


class DryRunStep(TypedDict):
    phase: str
    step: str
    worker_id: str
    function: str
    params: JsonObject
    waits_for: list[str]
    fault: str | None


class DryRunMember(TypedDict):
    member: str
    steps: list[DryRunStep]


class DryRun(TypedDict):
    name: str
    version: WholeNumber
    start: Moment
    phases: list[DryRunPhase]
    init: list[DryRunStep]
    members: list[DryRunMember]
    total_members: WholeNumber


class Rehearsal(TypedDict):
    rehearsal_id: str
    runbook: str
    version: WholeNumber
    made_at: Moment
    made_by: str
    report: Annotated[JsonObject, Meta(description="The timeline, members that miss a window, and the load of workers")]


class RehearsalList(Page):
    items: list[Rehearsal]


# --- Batches ---------------------------------------------------------------------------------------------------------


class MemberCounts(TypedDict):
    active: WholeNumber
    removed: WholeNumber
    failed: WholeNumber
    held: Annotated[WholeNumber, Meta(description="Active members that wait for a decision about their moved date")]


class Batch(TypedDict):
    batch_id: Id
    runbook: str
    version: WholeNumber
    start: Moment
    status: BatchStatus
    verdict: Annotated[Verdict | None, Meta(description="How it ended; null while it is open")]
    origin: str
    advance: str
    starts_at: Annotated[Moment, Meta(description="`start`, or the time that the batch was rescheduled to")]
    held_at: Moment | None
    hold_reason: str | None
    paused_at: Moment | None
    pause_reason: str | None
    error: str | None
    detected_at: Moment
    completed_at: Moment | None
    members: MemberCounts
    phases: PhaseCounts


class BatchList(Page):
    items: list[Batch]


class _Execution(TypedDict):
    step: str
    status: ExecutionStatus
    attempts: WholeNumber
    error: str | None
    dispatched_at: Moment | None
    completed_at: Moment | None


class InitStep(_Execution):
    version: WholeNumber


class PhaseStep(TypedDict):
    step: str
    step_index: WholeNumber
    counts: StepCounts


class PhaseDecision(TypedDict):
    by: str
    decision: Annotated[str, stated(enum=["approved", "refused"])]
    reason: str | None
    at: Moment


class PhaseApproval(TypedDict):
    role: Annotated[str, stated(enum=["operate", "admin"])]
    count: WholeNumber
    missing: Annotated[WholeNumber, Meta(description="Approvals that are still needed")]
    until: Moment
    otherwise: Annotated[str, stated(enum=["fail", "skip", "run"])]
    decisions: list[PhaseDecision]


class BatchPhase(TypedDict):
    phase: str
    version: WholeNumber
    offset: str
    due_at: Moment
    status: PhaseStatus
    error: str | None
    dispatched_at: Moment | None
    completed_at: Moment | None
    waits_until: Annotated[
        Moment | None, Meta(description="Until when it waits although it is due; null if it does not")
    ]
    approval: Annotated[PhaseApproval | None, Meta(description="Null if the phase needs none")]
    steps: list[PhaseStep]


class RunbookDeadMessage(TypedDict):
    messageId: str
    type: str
    batch_id: Id
    phase: str | None
    member: str | None
    step: str | None
    awaited: bool
    can_be_sent: bool
    reason: str
    dead_at: Moment


class UnsuccessfulMember(TypedDict):
    member: str
    phase: str
    step: str
    status: ExecutionStatus
    error: str | None


class Unsuccessful(TypedDict):
    """Active members with a step that failed or was cancelled."""

    count: WholeNumber
    members: Annotated[list[UnsuccessfulMember], Meta(description="The first of them, with the step that stopped each")]


class BehindMember(TypedDict):
    member_id: Id
    member: str
    status: ExecutionStatus
    since: Annotated[Moment | None, Meta(description="When the step was sent; null if it was not")]


class PhaseBehind(TypedDict):
    """The lowest step of a running phase that members have not ended, without those who catch up."""

    phase: str
    version: WholeNumber
    step: str
    count: Annotated[WholeNumber, Meta(description="Members that have not ended the step")]
    of: Annotated[WholeNumber, Meta(description="Members with which the phase began")]
    members: Annotated[list[BehindMember], Meta(description="Ten of them, those first who have been at it for longest")]


class BatchWhole(Batch):
    unsuccessful: Unsuccessful
    behind: list[PhaseBehind]
    source: Annotated[SourceState | None, Meta(description="Of its runbook; null for a batch that was made by hand")]
    init: list[InitStep]
    phase_list: list[BatchPhase]
    waiting_for: list[str]
    dead_messages: list[RunbookDeadMessage]


class GridColumn(TypedDict):
    phase: str
    version: WholeNumber
    step: str


class Grid(TypedDict):
    batch_id: Id
    number: Annotated[WholeNumber, Meta(description="Of the newest change in this answer: the next `since`")]
    whole: Annotated[bool, Meta(description="Whether this is the whole grid, to replace what the caller has")]
    columns: NotRequired[Annotated[list[GridColumn], Meta(description="Only of a whole grid")]]
    member_ids: Annotated[list[Id], Meta(description="All members, or those that have changed or joined")]
    member_keys: Annotated[list[str], Meta(description="Of the same members, cut after 80 characters")]
    member_states: Annotated[str, Meta(description="Of the same members, a character each")]
    cells: Annotated[str, Meta(description="A character each: rows one after another, or those that have changed")]
    cell_members: NotRequired[Annotated[list[Id], Meta(description="Of each changed cell")]]
    cell_columns: NotRequired[Annotated[list[WholeNumber], Meta(description="Of each changed cell, from 0")]]


class BatchMade(TypedDict):
    batch_id: Id
    runbook: str
    version: WholeNumber
    members: WholeNumber


class MovedPhase(TypedDict):
    phase: str
    due_at: Moment
    new_due_at: Moment
    overdue: Annotated[bool, Meta(description="Whether the new time has passed: the phase begins at once")]


class BatchActed(TypedDict):
    batch_id: Id
    status: NotRequired[BatchStatus]
    phase: NotRequired[str]
    approvals_missing: NotRequired[Annotated[WholeNumber, Meta(description="That the phase needs before it begins")]]
    members: NotRequired[WholeNumber]
    steps: NotRequired[WholeNumber]
    init: NotRequired[bool]
    removed: NotRequired[WholeNumber]
    sent: NotRequired[Annotated[list[str], Meta(description="Ids of the messages that were sent again")]]
    held: NotRequired[Annotated[bool, Meta(description="Whether `max_failures` still holds it")]]
    start: NotRequired[Annotated[Moment, Meta(description="When it starts, as rescheduled")]]
    previous_start: NotRequired[Moment]
    moved: NotRequired[Annotated[list[MovedPhase], Meta(description="The phases that have not begun")]]
    dry_run: NotRequired[Annotated[bool, Meta(description="Whether nothing was changed")]]
    more: NotRequired[Annotated[bool, Meta(description="Whether there are dead messages that were not looked at")]]


# --- Members ---------------------------------------------------------------------------------------------------------


class MemberStep(_Execution):
    phase: str
    result: NotRequired[Any]
    result_chars: NotRequired[Annotated[WholeNumber, Meta(description="Length of a result too long for a list")]]


class MemberFollowup(TypedDict):
    kind: str
    list: str
    step: str
    status: ExecutionStatus
    error: str | None


class Member(TypedDict):
    member_id: Id
    member: str
    status: Annotated[str, stated(enum=list(MEMBER))]
    failed_at: Moment | None
    added_at: Moment
    removed_at: Moment | None
    move_to: Annotated[Moment | None, Meta(description="The date that the source has moved the member to")]
    move_held_at: Annotated[Moment | None, Meta(description="Since when it is held because of that; null once decided")]
    row: NotRequired[
        Annotated[
            JsonObject | None, Meta(description="Its columns as last read, if `key` is given; null if there are none")
        ]
    ]
    steps: list[MemberStep]
    followups: list[MemberFollowup]
    waiting_for: str | None


class MemberList(Page):
    items: list[Member]
