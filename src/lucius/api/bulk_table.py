"""The rows of the table of operations that are about bulk operations."""

from __future__ import annotations

from lucius.api import bulk_operations as bulk
from lucius.api.endpoint import Handler
from lucius.api.operation import BODY_ERRORS, JOB_LIST_ERRORS, LIMIT, LIST_ERRORS, Operation, Parameter

OPERATION_ID = Parameter("operation_id", "path", "OperationId", "The operation's id, from the response to its creation")
KEY = Parameter(bulk.KEY_HEADER, "header", "IdempotencyKey", "The same key, by the same caller, means the same one")
CURSOR = Parameter("cursor", "query", "Cursor", "The `next` of the previous page")
ITEM_STATUS = Parameter("status", "query", "OutcomeStatus", "Only jobs with this outcome")


def _steer(name: str, handler: Handler, summary: str) -> Operation:
    return Operation(
        method="POST", path=f"/v1/operations/{{operation_id}}:{name}", name=f"{name}Operation", handler=handler,
        summary=summary, tag="operations", role="operate", body="Reason", body_required=False, status=202,
        answer="Operation", errors=(*BODY_ERRORS, "NOT_FOUND", "CONFLICT"), parameters=(OPERATION_ID,),
    )  # fmt: skip


BULK_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/operations", name="createOperation", handler=bulk.create, tag="operations",
        summary="Cancel, pause, resume or redrive every job that matches a filter", role="operate",
        body="NewOperation", status=202, answer="Operation",
        errors=(*BODY_ERRORS, *JOB_LIST_ERRORS, "TENANT_FORBIDDEN", "CONFLICT", "IDEMPOTENCY_KEY_REUSED"),
        parameters=(KEY,),
    ),
    Operation(
        method="POST", path="/v1/operations:preview", name="previewOperation", handler=bulk.preview, tag="operations",
        summary="Count the jobs that an operation would act on, and show the first", role="operate",
        body="OperationPreview", answer="OperationPreviewed",
        errors=(*BODY_ERRORS, *JOB_LIST_ERRORS, "TENANT_FORBIDDEN"),
    ),
    Operation(
        method="GET", path="/v1/operations", name="listOperations", handler=bulk.list_operations, tag="operations",
        summary="List bulk operations, newest first", role="read", answer="OperationList",
        errors=("ENVELOPE_INVALID", *LIST_ERRORS), parameters=(LIMIT, CURSOR),
    ),
    Operation(
        method="GET", path="/v1/operations/{operation_id}", name="getOperation", handler=bulk.get, tag="operations",
        summary="Get a bulk operation and its progress", role="read", answer="Operation",
        errors=("NOT_FOUND", "ENVELOPE_INVALID"), parameters=(OPERATION_ID,),
    ),
    Operation(
        method="GET", path="/v1/operations/{operation_id}/outcomes", name="listOutcomes", handler=bulk.list_outcomes,
        tag="operations", summary="What became of each job of an operation, oldest job first", role="read",
        answer="OutcomeList", errors=("NOT_FOUND", "ENVELOPE_INVALID", *LIST_ERRORS),
        parameters=(OPERATION_ID, ITEM_STATUS, LIMIT, CURSOR),
    ),
    _steer("pause", bulk.pause, "Act on no more jobs until the operation is resumed"),
    _steer("resume", bulk.resume, "Resume an operation that was paused or has stopped"),
    _steer("abandon", bulk.abandon, "End an operation; the jobs not acted on yet are left alone"),
)  # fmt: skip
