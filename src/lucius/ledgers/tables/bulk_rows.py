"""The rows of bulk operations, all in one partition, so that every change is one transaction.

| key | row |
| --- | --- |
| `operation:ID` | the operation as a document, and its lease; `ID` so that the newest sort first |
| `claim:KEY` | the operation that was created with this key |
| `active:ID` | of an operation that goes on by itself |
| `open:CREATOR:ID` | of an operation that has not ended |
| `ended:TIME:ID` | of one that has |
| `item:ID:JOB` | a job of an operation |
| `state:ID:STATUS:TIME:JOB` | the same by its status and, until its outcome is known, by when it is due |
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from lucius.azure.keys import instant, key, part
from lucius.azure.tables import Delete, Put, Row, Write
from lucius.domain.bulk_operation import BulkOperation, ItemStatus
from lucius.domain.time import Instant
from lucius.ledgers.tables.operators_table import descending, document_columns, read_document
from lucius.ports.bulk_operations import BulkItem

OPERATION, CLAIM, ACTIVE, OPEN, ENDED, ITEM, STATE = "operation", "claim", "active", "open", "ended", "item", "state"
UNDECIDED = (ItemStatus.PENDING, ItemStatus.STARTED)

_encode = msgspec.json.Encoder().encode
_decode_operation = msgspec.json.Decoder(BulkOperation).decode
_decode_item = msgspec.json.Decoder(BulkItem).decode


class Kept(Struct, frozen=True, kw_only=True):
    """An operation as it is kept."""

    operation: BulkOperation
    claim_key: str
    lease_holder: str | None = None
    lease_until: Instant = 0
    etag: str = ""


def operation_key(operation_id: str) -> str:
    return key(OPERATION, descending(part(operation_id)))


def claim_row_key(claim_key: str) -> str:
    return key(CLAIM, part(claim_key))


def active_key(operation_id: str) -> str:
    return key(ACTIVE, part(operation_id))


def open_prefix(creator: str) -> str:
    """A hash, because names may be longer than a key."""
    return key(OPEN, hashlib.sha256(creator.encode("utf-8", "surrogatepass")).hexdigest()[:32])


def ended_key(operation: BulkOperation) -> str:
    return key(ENDED, instant(operation.ended_at or 0), part(operation.operation_id))


def item_prefix(operation_id: str) -> str:
    return key(ITEM, part(operation_id))


def item_key(operation_id: str, job_id: str) -> str:
    return key(item_prefix(operation_id), part(job_id))


def state_prefix(operation_id: str, status: ItemStatus | None = None) -> str:
    prefix = key(STATE, part(operation_id))
    return prefix if status is None else key(prefix, status.value)


def state_key(operation_id: str, item: BulkItem) -> str:
    """What has an outcome is not due any more, and sorts by its job alone."""
    due_at = item.next_at if item.status in UNDECIDED else 0
    return key(state_prefix(operation_id, item.status), instant(due_at), part(item.job_id))


def read_kept(row: Row) -> Kept:
    return Kept(
        operation=_decode_operation(read_document(row.values)),
        claim_key=row.values["claim_key"],
        lease_holder=row.values.get("lease_holder"),
        lease_until=row.values["lease_until"],
        etag=row.etag,
    )


def read_item(row: Row) -> BulkItem:
    return _decode_item(read_document(row.values))


def item_values(item: BulkItem) -> dict[str, bytes]:
    return document_columns(_encode(item))


def operation_write(kept: Kept) -> Put:
    """Only if nobody has changed it since it was read."""
    values: dict[str, Any] = {
        **document_columns(_encode(kept.operation)),
        "claim_key": kept.claim_key,
        "lease_holder": kept.lease_holder,
        "lease_until": kept.lease_until,
    }
    return Put(operation_key(kept.operation.operation_id), values, kept.etag)


def index_writes(before: BulkOperation, after: BulkOperation) -> list[Write]:
    """Of a change from one to the other."""
    writes: list[Write] = []
    operation_id = after.operation_id
    if after.is_active and not before.is_active:
        writes.append(Put(active_key(operation_id), {}))
    if before.is_active and not after.is_active:
        writes.append(Delete(active_key(operation_id)))
    if before.ended_at is None and after.ended_at is not None:
        writes += [Delete(key(open_prefix(after.by), part(operation_id))), Put(ended_key(after), {})]
    return writes
