"""What the tour of the console shows: jobs that run, wait and fail, and a migration with a rehearsal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.console.batch_scenario import Batch
from tests.console.console_server import Server

TENANTS = ("contoso", "fabrikam", "northwind")
OCR_HEADERS = {"Lucius-Instance": "ocr-7f9c5-2xk4p", "Lucius-Version": "1.4.2", "Lucius-In-Work": "3"}
MEMBERS = [f"{name}@contoso.example" for name in ("ann", "ben", "cleo", "dan", "eve", "finn", "gina", "hugo", "ida")]
RUNBOOK = """\
name: Mailbox move
description: Moves mailboxes in three phases.
data_source: {type: manual, primary_key: Upn}
phases:
  - name: prepare
    offset: T-5d
    steps:
      - {name: check, worker_id: worker-Mailbox-move, function: Test-Mailbox, params: {Upn: "{{Upn}}"}, timeout: 10m}
      - {name: copy, worker_id: worker-Mailbox-move, function: Copy-Mailbox, params: {Upn: "{{Upn}}"}, timeout: 12h,
         retry: {max_retries: 2, interval: 10m}}
  - name: cut-over
    offset: T-1d
    steps:
      - {name: switch, worker_id: worker-Mailbox-move, function: Switch-Mailbox, params: {Upn: "{{Upn}}"}, timeout: 1h}
  - name: tidy up
    offset: T-0
    steps:
      - {name: archive, worker_id: worker-Mailbox-move, function: Archive-Mailbox, params: {Upn: "{{Upn}}"}}
"""


def _finish(server: Server, directives: Sequence[dict[str, Any]]) -> None:
    for number, directive in enumerate(directives):
        server.call_back("ack", directive, acked_by=OCR_HEADERS["Lucius-Instance"])
        if number % 4 == 3:
            error = {"code": "BLANK_PAGE", "message": f"page {number + 1} of the scan is blank"}
            server.call_back("result", directive, status="FAILED", failure_class="NON_RETRYABLE", error=error)
        elif number % 4 != 2:
            server.call_back("result", directive, status="SUCCEEDED", artifacts={"pages": number + 1})


def play(server: Server) -> dict[str, str]:
    """The pages of the tour, by name."""
    jobs = [
        server.submit(tenant_id=tenant, request_type=kind, payload=payload, idempotency_key=f"tour-{number}-{tenant}")
        for number in range(5)
        for tenant in TENANTS
        for kind, payload in (
            ("OCR_EMBEDDING_SIS", {"ocr": {"language": "en"}, "sis": {"prompt_set": ["When does it end?"]}}),
        )
    ]
    own = [server.take(job_id, headers=OCR_HEADERS) for job_id in jobs[:12]]
    _finish(server, own)
    server.client.post(f"/v1/jobs/{jobs[-1]}:pause", json={"reason": "the scanner is being repaired"})
    working = jobs[2]
    server.client.post("/v1/runbooks", json={"yaml": RUNBOOK}).raise_for_status()
    made = server.client.post("/v1/runbooks/Mailbox move:rehearse", json={"count": 60, "fail": "3%"})
    made.raise_for_status()
    batch = Batch.of_published(server, "Mailbox move", MEMBERS)
    batch.act("advance")
    batch.answer(batch.jobs(len(MEMBERS)), lambda member: "the mailbox is locked" if member.startswith("eve") else None)
    batch.answer(batch.jobs(len(MEMBERS) - 1)[:5])
    return {
        "overview": "/",
        "job": f"/jobs/{working}",
        "dead-letters": "/dead-letters",
        "lanes": "/lanes",
        "tenants": "/tenants",
        "protocol": "/protocols/OCR_EMBEDDING_SIS",
        "submit": f"/submit?like={jobs[0]}",
        "runbook": "/runbooks/Mailbox move",
        "rehearsal": f"/runbooks/Mailbox move/rehearsals/{made.json()['rehearsal_id']}",
        "batch": f"/batches/{batch.id}",
        "audit": "/audit",
    }
