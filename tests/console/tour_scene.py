"""What the tour of the console shows: jobs that run, wait and fail, and a migration with a rehearsal."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.console.batch_scenario import Batch
from tests.console.console_server import Server

TENANTS = {"contoso": 11, "fabrikam": 6, "northwind": 3}
"""With how many jobs."""
STEPS = ("ocr", "embedding", "sis")
OCR = {"Lucius-Instance": "ocr-7f9c5-2xk4p", "Lucius-Version": "1.4.2", "Lucius-In-Work": "3"}
LANES, OUTAGE = 16, (1, 4, 11, 15)
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


def play(server: Server) -> dict[str, str]:
    """The pages of the tour, by name."""
    kind, payload = "OCR_EMBEDDING_SIS", {"ocr": {"language": "en"}, "sis": {"prompt_set": ["When does it end?"]}}
    jobs = [
        server.submit(tenant_id=tenant, request_type=kind, payload=payload, idempotency_key=f"tour-{number}-{tenant}")
        for tenant, count in TENANTS.items()
        for number in range(count)
    ]
    _act(server, f"jobs/{jobs[16]}:cancel", "sent twice by mistake")
    for job_id in jobs[:7]:
        for service in STEPS:
            _succeed(server, job_id, service)
    for job_id, code, message in (
        (jobs[7], "BLANK_PAGE", "page 4 of the scan is blank"),
        (jobs[8], "UNSUPPORTED_FORMAT", "a scan in JPEG 2000 cannot be read"),
        (jobs[10], "TOO_DARK", "nothing is legible"),
        (jobs[11], "DAMAGED", "the file ends too early"),
        (jobs[18], "BLANK_PAGE", "page 12 of the scan is blank"),
    ):
        _fail(server, job_id, "ocr", code, message)
    again = _redriven(server, jobs[12])
    for job_id in jobs[13:15]:
        server.call_back("ack", server.take(job_id, headers=OCR), status="ACKED", acked_by=OCR["Lucius-Instance"])
    _act(server, f"jobs/{jobs[15]}:pause", "the scanner is being repaired")
    _succeed(server, jobs[15], "ocr")
    _act(server, f"admin/dead-letters/{jobs[11]}:dismiss", "the original is lost")
    for tenant in ("contoso", "tailspin", "adatum"):  # Nobody has asked for work since.
        server.submit(tenant_id=tenant, request_type=kind, payload=payload)
    batch, rehearsal = _migration(server)
    return {
        "overview": "/",
        "job": f"/jobs/{again}",
        "dead-letters": "/dead-letters",
        "lanes": "/lanes",
        "tenants": "/tenants",
        "protocol": f"/protocols/{kind}",
        "submit": f"/submit?like={jobs[0]}",
        "runbook": "/runbooks/Mailbox move",
        "rehearsal": f"/runbooks/Mailbox move/rehearsals/{rehearsal}",
        "batch": f"/batches/{batch.id}",
        "audit": "/audit",
    }


def _succeed(server: Server, job_id: str, service: str) -> None:
    directive = server.take(job_id, service, OCR if service == "ocr" else None)
    server.call_back("ack", directive, acked_by=OCR["Lucius-Instance"] if service == "ocr" else None)
    server.call_back("result", directive, status="SUCCEEDED", artifacts={"pages": 12})


def _fail(server: Server, job_id: str, service: str, code: str, message: str, kind: str = "NON_RETRYABLE") -> None:
    directive = server.take(job_id, service, OCR if service == "ocr" else None)
    server.call_back("ack", directive)
    error = {"code": code, "message": message}
    server.call_back("result", directive, status="FAILED", failure_class=kind, error=error)


def _redriven(server: Server, job_id: str) -> str:
    """A job that failed in its second step, was redriven, and waits for its next try."""
    _succeed(server, job_id, "ocr")
    _fail(server, job_id, "embedding", "MODEL_GONE", "the model e-5 was switched off")
    again = str(_act(server, f"jobs/{job_id}:redrive", "the model is back")["jobId"])
    _fail(server, again, "embedding", "OVERLOADED", "too many requests at once", "RETRYABLE")
    return again


def _act(server: Server, path: str, reason: str) -> dict[str, Any]:
    answer = server.client.post(f"/v1/{path}", json={"reason": reason})
    answer.raise_for_status()
    return dict(answer.json())


def _migration(server: Server) -> tuple[Batch, str]:
    """A batch that starts tomorrow, in its first phase, and what was expected of it."""
    server.client.post("/v1/runbooks", json={"yaml": RUNBOOK}).raise_for_status()
    made = server.client.post("/v1/runbooks/Mailbox move:rehearse", json={"count": 60, "fail": "3%"})
    made.raise_for_status()
    start = f"{datetime.now(UTC) + timedelta(hours=40):%Y-%m-%dT%H:00:00Z}"
    batch = Batch.of_published(server, "Mailbox move", MEMBERS, start=start)
    batch.act("advance", {"reason": "everybody was told"})
    batch.answer(batch.jobs(len(MEMBERS)), lambda member: "the mailbox is locked" if member.startswith("eve") else None)
    batch.answer(batch.jobs(len(MEMBERS) - 1)[:5])
    return batch, str(made.json()["rehearsal_id"])


def fill_the_last_hour(server: Server) -> None:
    """As an outage of twenty minutes leaves it on the map of lanes: the pictures cannot wait for one."""
    minute = time.time_ns() // 60_000_000_000
    with contextlib.closing(sqlite3.connect(server.folder / "data" / "lucius.db", timeout=30)) as ledger, ledger:
        for ago in range(1, 56):
            ages = [0.0] * LANES
            for lane, seconds in enumerate((3, 0, 7, 2, 12, 0, 4, 0, 5, 9, 0, 6, 0, 2, 0, 8)):
                ages[lane] = float(seconds if (ago * 7 + lane) % 5 else 0)
            if 15 < ago <= 36:
                for lane in OUTAGE:
                    ages[lane] = 60.0 * (36 - ago) + lane
            ledger.execute(
                "INSERT INTO lane_samples (minute, oldest_seconds) VALUES (?, ?) ON CONFLICT (minute) DO NOTHING",
                (minute - ago, json.dumps(ages)),
            )
