"""`lucius operations`, and the filters of `cancel`, `pause`, `resume` and `redrive`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lucius.cli.failures import EXIT_INTERRUPTED
from lucius.cli.operations import commands

ID = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"
JOB = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1b"
AT = "2026-01-31T08:15:30.250Z"
CREATE, PREVIEW = "POST /v1/operations", "POST /v1/operations:preview"


def operation(status: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    return {
        "operationId": ID, "action": "redrive", "status": status, "sentence": "Acted on 1 of 3 jobs; 0 failed.",
        "tenants": ["acme"], "filter": {"status": "FAILED_FINAL", "request_type": None}, "by": "key:ops",
        "reason": "fixed", "rate_per_second": 20.0, "canary": 0, "canary_max_failures": 0, "max_failures": None,
        "jobs": 3, "pending": 2, "started": 0, "succeeded": 1, "failed": 0, "skipped": 0, "created_at": AT,
        "updated_at": AT, "ended_at": None,
        "events": [{"at": AT, "type": "CREATED", "by": "key:ops", "reason": "fixed"}],
    } | fields  # fmt: skip


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "redrive"])
def test_filters_show_what_matches_and_do_nothing(scripted: Any, verb: str) -> None:
    scripted.on(PREVIEW, {"action": verb, "count": 25, "sample": [{"jobId": JOB, "tenant_id": "acme"}]})
    shown = scripted.lucius(verb, "--tenant", "acme", "--from", AT, "--signature", "s", "--request-type", "OCR")
    assert shown.exit_code == 0, shown.output
    assert JOB in shown.stdout
    assert "25 jobs would be" in shown.stdout
    assert "Nothing was done. Add --yes" in shown.stderr
    ((call, body, _),) = scripted.calls
    wanted = {"tenant_id": "acme", "request_type": "OCR", "created_from": AT, "error_signature": "s"}
    assert (call, body) == (PREVIEW, {"action": verb, "filter": wanted})


def test_one_job_is_redriven_with_the_payload_of_a_file(scripted: Any, tmp_path: Path) -> None:
    file = tmp_path / "fixed.json"
    file.write_text('{"language": "de", "input_ref": "kept as it is"}')
    scripted.on(f"POST /v1/jobs/{JOB}:redrive", {"jobId": ID, "status": "QUEUED"}, status=202)
    shown = scripted.lucius("redrive", JOB, "--payload", str(file), "--reason", "wrong language")
    assert (shown.exit_code, shown.stdout) == (0, f"Job {ID} QUEUED, a redrive of {JOB}\n")
    payload = {"language": "de", "input_ref": "kept as it is"}
    assert scripted.calls[0][1] == {"reason": "wrong language", "payload": payload}
    file.write_text('["de"]')
    refused = scripted.lucius("redrive", JOB, "--payload", str(file))
    assert (refused.exit_code, len(scripted.calls)) == (2, 1)
    assert "must contain a JSON object, a payload" in refused.stderr
    for_all = scripted.lucius("redrive", "--tenant", "acme", "--payload", str(file))
    assert (for_all.exit_code, len(scripted.calls)) == (2, 1)
    assert "--payload is for one JOB" in for_all.stderr


def test_yes_creates_an_operation(scripted: Any) -> None:
    scripted.on(CREATE, operation("SELECTING"), status=202)
    more = ("--canary", "2", "--max-failures", "5", "--rate", "3", "--canary-max-failures", "1")
    shown = scripted.lucius("redrive", "--status", "failed_final", "--yes", "--reason", "fixed", *more)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == f"Operation {ID} SELECTING\n"
    assert f"lucius operations watch {ID}" in shown.stderr
    assert scripted.calls[0][1] == {
        "action": "redrive", "filter": {"status": "FAILED_FINAL"}, "reason": "fixed", "rate_per_second": 3.0,
        "canary": 2, "canary_max_failures": 1, "max_failures": 5,
    }  # fmt: skip
    assert scripted.keys[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Name the JOB to cancel, or say which ones"),
        ((JOB, "--tenant", "acme"), "not both"),
        ((JOB, "--canary", "1"), "not both"),
        (("--tenant", "acme", "--yes"), "Say why with --reason"),
        (("--tenant", "acme", "--force", "--reason", "it hangs"), "--force ends one JOB at a time"),
        (("--status", "SUCCEEDED"), "Invalid value for '--status'"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_sent(scripted: Any, words: tuple[str, ...], said: str) -> None:
    shown = scripted.lucius("cancel", *words)
    assert (shown.exit_code, scripted.calls) == (2, [])
    assert said in shown.stderr


def test_no_match_is_said(scripted: Any) -> None:
    scripted.on(PREVIEW, {"action": "cancel", "count": 0, "sample": []})
    shown = scripted.lucius("cancel", "--tenant", "acme")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "No jobs match: nothing to do.\n")


def test_one_job_takes_a_reason(scripted: Any) -> None:
    scripted.on(f"POST /v1/jobs/{JOB}:cancel", {"jobId": JOB, "status": "CANCELLED"}, status=202)
    assert scripted.lucius("cancel", JOB, "--reason", "no more").stdout == f"Job {JOB} CANCELLED\n"
    assert scripted.calls[0][1] == {"reason": "no more"}


def test_list_show_and_outcomes(scripted: Any) -> None:
    scripted.on("GET /v1/operations", {"items": [operation()], "next": None})
    lines = scripted.lucius("operations", "list").stdout.splitlines()
    assert lines[0].split() == ["OPERATION", "ACTION", "STATUS", "JOBS", "PENDING", "FAILED", "BY", "CREATED", "REASON"]
    assert lines[1].split()[:6] == [ID, "redrive", "RUNNING", "3", "2", "0"]
    scripted.on(f"GET /v1/operations/{ID}", operation())
    shown = scripted.lucius("operations", "show", ID).stdout
    assert "Acted on 1 of 3 jobs" in shown
    assert "2 pending, 0 started, 1 succeeded, 0 failed, 0 skipped" in shown
    assert "CREATED by key:ops: fixed" in shown
    item = {"jobId": JOB, "tenant_id": "acme", "status": "FAILED", "new_jobId": ID, "detail": "it ended badly"}
    scripted.on(f"GET /v1/operations/{ID}/outcomes", {"items": [item], "next": None})
    lines = scripted.lucius("operations", "outcomes", ID, "--status", "failed").stdout.splitlines()
    assert lines[1].split(maxsplit=4) == [JOB, "acme", "FAILED", ID, "it ended badly"]
    assert "status=FAILED" in scripted.calls[-1][0]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (operation("COMPLETED"), 0), (operation("COMPLETED", failed=1), 1), (operation("STOPPED", failed=1), 1),
        (operation("ABANDONED"), 1),
    ],
)  # fmt: skip
def test_watch_ends_with_the_operation(scripted: Any, last: dict[str, Any], code: int) -> None:
    scripted.on(f"GET /v1/operations/{ID}", operation(), last)
    shown = scripted.lucius("operations", "watch", ID)
    assert shown.exit_code == code
    assert [line.partition(":")[0] for line in shown.stdout.splitlines()] == ["RUNNING", last["status"]]
    ended = scripted.lucius("operations", "watch", ID, "--output", "json")
    assert json.loads(ended.stdout) == last


def test_watch_has_an_end(scripted: Any) -> None:
    scripted.on(f"GET /v1/operations/{ID}", operation())
    shown = scripted.lucius("operations", "watch", ID, "--timeout", "0.01")
    assert (shown.exit_code, "it continues" in shown.stderr) == (5, True)


def test_leaving_a_watch_says_that_the_operation_continues(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def press_ctrl_c(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=time.monotonic, sleep=press_ctrl_c))
    scripted.on(f"GET /v1/operations/{ID}", operation())
    shown = scripted.lucius("operations", "watch", ID)
    assert shown.exit_code == EXIT_INTERRUPTED
    assert f"Interrupted. Operation {ID} continues:" in shown.stderr
    assert f"operations abandon {ID}" in shown.stderr


@pytest.mark.parametrize("verb", ["pause", "resume", "abandon"])
def test_operations_are_steered_with_a_reason(scripted: Any, verb: str) -> None:
    scripted.on(f"POST /v1/operations/{ID}:{verb}", operation("PAUSED"), status=202)
    yes = ["--yes"] if verb == "abandon" else []
    shown = scripted.lucius("operations", verb, ID, "--reason", "because", *yes)
    assert shown.stdout.startswith(f"Operation {ID} PAUSED: ")
    assert scripted.calls[0][1] == {"reason": "because"}
