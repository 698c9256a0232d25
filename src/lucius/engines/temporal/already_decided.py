"""Facts that an earlier try of the same workflow task has already decided.

Temporal runs a workflow task again when its result was lost or refused: the worker was stopped, the task took too long,
or a signal came in while the workflow was about to end. What the first try wrote to the ledger remains, so its facts
must not be decided and recorded again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucius.domain.effects import Event, Outcome
from lucius.domain.inputs import (
    Acked,
    CancelAsked,
    ForceCancelAsked,
    HeartbeatSeen,
    Input,
    PauseAsked,
    Resulted,
    ResumeAsked,
)

_CALLBACK_EVENTS: dict[type, str] = {Acked: "ACK", HeartbeatSeen: "HEARTBEAT", Resulted: "RESULT"}
_OPERATION_EVENTS: dict[type, str] = {
    CancelAsked: "CANCEL_ASKED",
    ForceCancelAsked: "CANCEL_FORCED",
    PauseAsked: "PAUSED",
    ResumeAsked: "RESUMED",
}


def split_decided(facts: Sequence[Input], events: Sequence[Event]) -> tuple[list[Input], list[Event]]:
    """The facts that none of these events records, and the events that record none of these facts.

    Only applied facts need this: `decide` itself records a callback that is not applied once.
    """
    events_left = list(events)
    undecided = []
    for fact in facts:
        event = next((event for event in events_left if _tells_of(event, fact)), None)
        if event is None:
            undecided.append(fact)
        else:
            events_left.remove(event)
    return undecided, events_left


def _tells_of(event: Event, fact: Input) -> bool:
    match fact:
        case Acked() | HeartbeatSeen() | Resulted():
            return (
                event.type == _CALLBACK_EVENTS[type(fact)]
                and event.data.get("outcome") == Outcome.APPLIED
                and (event.step_id, event.attempt_no) == (fact.step_id, fact.attempt_no)
                and (not isinstance(fact, Acked) or fact.held_by is None)
                and (not isinstance(fact, Resulted) or event.data.get("verdict") == fact.verdict)
            )
        case CancelAsked() | ForceCancelAsked() | PauseAsked() | ResumeAsked():
            return event.type == _OPERATION_EVENTS[type(fact)] and event.data.get("by") == fact.by
    return False
