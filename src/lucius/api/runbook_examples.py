"""Examples of request bodies for runbooks, batches and their workers."""

from __future__ import annotations

from typing import Any

YAML = """\
name: mailbox-move
data_source: {type: manual, primary_key: Mailbox}
phases:
  - name: move
    offset: T-0
    steps:
      - {name: start, worker_id: exchange, function: Start-Move, params: {Mailbox: "{{Mailbox}}"}}
"""
CSV = "Mailbox\nann@example.org\nbob@example.org\n"
JOB_TOKEN = "j1.k1.…"  # noqa: S105 - only the form of a token

RUNBOOK_EXAMPLES: dict[str, Any] = {
    "publishRunbook": {"yaml": YAML, "overdue_behavior": "rerun", "rerun_init": False},
    "validateRunbook": {"yaml": YAML},
    "retireRunbook": {},
    "stopRunbook": {},
    "startRunbook": {},
    "confirmRunbook": {},
    "previewRunbook": {"limit": 5},
    "dryRunRunbook": {"csv": CSV, "start": "2026-03-15T08:00:00Z", "limit": 5},
    "rehearseRunbook": {"count": 50, "start": "2026-03-15T08:00:00Z", "fail": "2%"},
    "createBatch": {"runbook": "mailbox-move", "csv": CSV, "start": "2026-03-15T08:00:00Z", "advance": "time"},
    "advanceBatch": {},
    "approvePhase": {"reason": "the change board agrees"},
    "refusePhase": {"reason": "the target is not ready"},
    "cancelBatch": {"reason": "the change window was withdrawn"},
    "pauseBatch": {"reason": "the gateway is down"},
    "resumeBatch": {},
    "rescheduleBatch": {"start": "2026-03-16T08:00:00Z", "dry_run": True, "reason": "the change window has moved"},
    "retryBatch": {"members": ["ann@example.org"]},
    "confirmMove": {"members": ["ann@example.org"]},
    "keepMembers": {"members": ["ann@example.org"]},
    "sendMessagesAgain": {"messages": ["phase-due-12-0"]},
    "removeMembers": {"members": ["bob@example.org"]},
    "addMembers": {"csv": "Mailbox\ncarl@example.org\n"},
    "pullWorkerJobs": {"workerId": "exchange", "max": 64, "wait_seconds": 20},
    "renewWorkerJobs": {"workerId": "exchange", "jobIds": ["step-1042-a1"], "tokens": [JOB_TOKEN]},
    "takeWorkerResults": {
        "results": [
            {
                "jobId": "step-1042-a1", "status": "Success", "result": {"complete": True},
                "correlationData": {"kind": "step", "stepExecutionId": 1042, "token": JOB_TOKEN},
            },
            {
                "jobId": "step-1043-a1", "status": "Failure", "error": {"message": "the mailbox is locked"},
                "correlationData": {"kind": "step", "stepExecutionId": 1043, "token": JOB_TOKEN},
            },
        ]
    },
}  # fmt: skip
