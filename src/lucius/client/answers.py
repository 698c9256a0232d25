"""Readers of each answer. Answers without a model are plain JSON, as docs/reference/http.md describes them."""

from __future__ import annotations

from typing import Any

from lucius.client.call import Json
from lucius.client.models.jobs import Accepted, Event, Job, Protocol, Step, SubmittedItem, Validation
from lucius.client.models.operations import Operation, OperationOutcome, OperationPreview
from lucius.client.models.pages import items_of, page_of
from lucius.client.models.runbooks import (
    Batch,
    CreatedBatch,
    Member,
    Published,
    Runbook,
    RunbookEvent,
    RunbookValidation,
)


def JSON(content: Json) -> Json:
    return content


def CSV(content: bytes) -> bytes:
    return content


def SUBMITTED(content: list[Any]) -> list[SubmittedItem]:
    return [SubmittedItem.read(item) for item in content]


ACCEPTED = Accepted.read
VALIDATION = Validation.read
JOB = Job.read
JOBS = page_of(Job.read)
STEPS = items_of(Step.read, "steps")
EVENTS = page_of(Event.read, "events")
PROTOCOLS = items_of(Protocol.read)
PROTOCOL = Protocol.read
RUNBOOKS = items_of(Runbook.read)
RUNBOOK = Runbook.read
PUBLISHED = Published.read
RUNBOOK_VALIDATION = RunbookValidation.read
RUNBOOK_EVENTS = page_of(RunbookEvent.read)
BATCHES = page_of(Batch.read)
BATCH = Batch.read
CREATED_BATCH = CreatedBatch.read
MEMBERS = page_of(Member.read)
OPERATION = Operation.read
OPERATIONS = page_of(Operation.read)
OPERATION_PREVIEW = OperationPreview.read
OUTCOMES = page_of(OperationOutcome.read)
