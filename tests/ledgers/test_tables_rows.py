"""What other programs find in the tables: keys and columns as the ledger's specification names them, with `:` in keys
where it has `#`, and `status` for `state`. Directives are built when they are sent, so the outbox has none."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from msgspec import Raw
from tests.azurite import Azurite
from tests.tables_ledger import opened_ledger

from lucius.azure.tables import Row
from lucius.domain.attempt import Failure, Verdict
from lucius.domain.job import Job
from lucius.ledgers.tables import TablesLedger
from lucius.testing.ledger_driver import LedgerDriver, ack, published, result
from lucius.testing.samples import ManualClock

JOB = {
    "tenant_id", "request_type", "protocol_id", "mode", "doc_id", "status", "idempotency_key", "idempotency_hash",
    "current_step_id", "current_step_index", "attempts_total", "created_at", "updated_at", "completed_at", "error_code",
    "error_message", "correlation_id", "traceparent",
}  # fmt: skip
ROUTING = {"resolved_mode", "lane", "routing_key_used", "decision_source", "decision_reason"}
STEP = ROUTING | {
    "step_id", "step_type", "service", "status", "attempt_no", "lease_id", "lease_expires_at", "input_ref",
    "workspace_ref", "output_ref", "payload", "last_error_code", "last_error_message", "created_at", "updated_at",
    "completed_at",
}  # fmt: skip
OUTBOX = ROUTING | {
    "jobId", "stepId", "attempt_no", "lease_id", "status", "topic", "created_at", "sent_at", "updated_at"
}  # fmt: skip
EVENT = {"event_type", "payload", "created_at"}


PLACES = {
    "ledger": {
        "job": ("ledger", "{id}", "JOB"),
        "steps": ("ledger", "{id}", "STEP:000:ocr", "STEP:001:sis"),
        "outbox": ("ledger", "{id}", "OUTBOX:000:000001", "OUTBOX:001:000001"),
        "event": ("ledger", "{id}", "EVENT:0000000002"),
    },
    "table": {
        "job": ("jobs", "acme:{month}", "{id}"),
        "steps": ("steps", "{id}", "000:ocr", "001:sis"),
        "outbox": ("outbox", "acme:{month}", "{id}:000:000001", "{id}:001:000001"),
        "event": ("events", "{id}", "{at:015d}:0000000002"),
    },
}
"""By layout: the table, the partition, and the keys of a job's rows."""


async def _read(ledger: TablesLedger, kind: str, job: Job) -> list[Row]:
    at = job.spec.created_at
    month = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m")
    words = [word.format(id=job.job_id, month=month, at=at) for word in PLACES[ledger.store.layout.name][kind]]
    table = ledger.store.account.table(ledger.store.prefix + words[0])
    rows = [await table.get(words[1], key) for key in words[2:]]
    found = [row for row in rows if row is not None]
    assert len(found) == len(rows), (words, await table.rows(words[1], limit=100, select=[]))
    assert all(row.values["op_id"] for row in found)
    return found


def _names(rows: list[Row]) -> set[str]:
    """Columns that at least one of these rows has: one without a value is not written."""
    return {name for row in rows for name in row.values}


@pytest.mark.parametrize("layout", ["ledger", "table"])
async def test_rows_have_the_names_of_the_specification(azurite: Azurite, layout: str) -> None:
    async with opened_ledger(azurite, layout) as ledger:
        driver = LedgerDriver(ledger, ManualClock())
        trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        job = await driver.create(
            key="key", steps=["ocr", "sis"], doc_id="d-1", traceparent=trace, correlation_id="order-1"
        )
        job = await driver.tell(job, published(job))
        job = await driver.tell(job, ack(job))
        working = (await _read(ledger, "steps", job))[0]
        assert working.values["lease_expires_at"] == job.steps[0].due_at
        job = await driver.tell(job, result(job, output_ref=Raw(b'"blob://out"')))
        job = await driver.tell(job, published(job))
        broken = Failure("BROKEN", "it broke")
        job = await driver.tell(job, result(job, Verdict.FAILED, retryable=False, error=broken))
        steps = await _read(ledger, "steps", job)
        assert _names(await _read(ledger, "job", job)) >= JOB
        assert _names([working, *steps]) >= STEP
        assert _names(await _read(ledger, "outbox", job)) >= OUTBOX
        assert _names(await _read(ledger, "event", job)) >= EVENT
        assert "lease_expires_at" not in steps[0].values
        assert json.loads(steps[0].values["payload"]) == json.loads(bytes(job.steps[0].spec.payload))
        assert json.loads(steps[0].values["output_ref"]) == "blob://out"
