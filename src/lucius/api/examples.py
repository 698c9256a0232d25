"""Examples of request bodies, shown in the OpenAPI document and tried by a test."""

from __future__ import annotations

from typing import Any

from lucius.api.runbook_examples import RUNBOOK_EXAMPLES

_IDS = {
    "jobId": "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a",
    "stepId": "ocr",
    "tenant_id": "acme",
    "attempt_no": 1,
    "lease_id": "5f0c1d2e3b4a59687766554433221100",
}

ENVELOPE: dict[str, Any] = {
    "tenant_id": "acme",
    "request_type": "OCR_EMBEDDING_SIS",
    "input_ref": "https://documents.example/contracts/17.pdf",
    "output_ref": "https://documents.example/answers/17.json",
    "payload": {
        "ocr": {"language": "en"},
        "embedding": {"chunk_size": 800},
        "sis": {"prompt_set": ["When does the contract end?"], "output": "json"},
    },
    "schema_version": "1",
    "idempotency_key": "contract-17",
}

EXAMPLES: dict[str, Any] = {
    "submitCommand": ENVELOPE,
    "validateCommand": ENVELOPE,
    "submitCommands": {"commands": [ENVELOPE]},
    "ackCallback": {**_IDS, "status": "ACKED"},
    "resultCallback": {**_IDS, "status": "SUCCEEDED", "artifacts": {"text_ref": "blob://work/ocr/output.txt"}},
    "heartbeatCallback": {**_IDS, "progress": 0.4, "note": "page 4 of 10"},
    "callbackBatch": {"callbacks": [{"type": "ACK", **_IDS, "callback_token": "v1.k1.1767225600.c2lnbmF0dXJl"}]},
    "pullDirectives": {"service": "ocr", "max": 10, "wait_seconds": 20},
    "cancelJob": {"reason": "sent by mistake"},
    "previewProtocol": {
        "yaml": "id: OCR\nversion: 2\nrequest_types: [OCR]\nsteps: [{id: ocr, type: OCR, service: ocr}]\n",
        "payloads": 50,
    },
    "dismissDeadLetter": {"reason": "the client has withdrawn it"},
    "createOperation": {
        "action": "redrive",
        "filter": {"request_type": "OCR", "created_to": "2026-01-31T00:00:00Z"},
        "reason": "the OCR service is fixed",
        "canary": 10,
        "max_failures": 20,
        "rate_per_second": 5,
    },
    "previewOperation": {"action": "cancel", "filter": {"request_type": "OCR", "status": "QUEUED"}},
    "createConsoleLink": {},
    "pruneJobs": {"older_than_seconds": 2592000},
    "testNotification": {"tenant_id": "acme", "recipient": "on-call"},
    "pauseOperation": {"reason": "look at the first failures"},
    "resumeOperation": {"reason": "these failures were expected"},
    "abandonOperation": {"reason": "not fixed yet"},
    **RUNBOOK_EXAMPLES,
}
