"""The command line without LUCIUS behind it: a server that answers whatever a test wants, or none at all."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lucius.cli.failures import EXIT_UNREACHABLE
from lucius.cli.main import cli
from lucius.cli.serve.sample import run_sample, sample_command
from lucius.platform.file_roots import SAMPLES

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def lucius(url: str, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, ["--url", url, *arguments], **options)


def job(status: str = "IN_PROGRESS", **fields: Any) -> dict[str, Any]:
    made = {
        "jobId": "j1",
        "tenant_id": "demo",
        "request_type": "OCR",
        "status": status,
        "progress": 0.5,
        "created_at": "2026-01-31T08:15:30.250Z",
        "completed_at": "2026-01-31T08:15:32.250Z" if status in ("SUCCEEDED", "FAILED_FINAL", "CANCELLED") else None,
        "steps": [{"stepId": "ocr", "service": "ocr", "status": "PROCESSING", "attempt_no": 1, "progress": 0.5}],
    }
    return {**made, **fields}


def command_file(folder: Path, **fields: Any) -> str:
    path = folder / "command.json"
    path.write_text(json.dumps({"tenant_id": "demo", "input_ref": "a b.pdf", "output_ref": "out/x.json", **fields}))
    return str(path)


@pytest.mark.parametrize(
    "command",
    [("get", "j1"), ("list",), ("cancel", "j1"), ("events", "j1"), ("get", "j1", "-o", "json"), ("why", "j1"),
     ("protocols",), ("protocols", "OCR"), ("lanes",), ("tenants",), ("dead-letters",)],
)  # fmt: skip
def test_a_server_out_of_reach_is_exit_code_4(command: tuple[str, ...]) -> None:
    ended = lucius(NOWHERE, *command)
    assert ended.exit_code == 4
    assert "is unreachable" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    "command",
    [("nonsense",), ("get",), ("get", "j1", "--output", "xml"), ("list", "--limit", "0"), ("submit", "missing.json"),
     ("watch", "j1", "--timeout", "0"), ("prune", "--older-than", "soon"), ("prune", "--older-than", "0d"),
     ("up", "--sample", "--no-services"), ("up", "--port", "70000"), ("why",), ("validate",),
     ("validate", "missing.json"), ("dead-letters", "--limit", "201"), ("lanes", "--output", "xml")],
)  # fmt: skip
def test_a_wrong_command_line_is_exit_code_2(command: tuple[str, ...]) -> None:
    assert lucius(NOWHERE, *command).exit_code == 2


def test_an_address_that_is_none_is_exit_code_2() -> None:
    assert lucius("localhost:8000", "get", "j1").exit_code == 2


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000]
)
@pytest.mark.parametrize("command", ["submit", "validate"])
def test_a_command_file_that_is_no_command_is_exit_code_2(tmp_path: Path, content: bytes, command: str) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    assert lucius(NOWHERE, command, "bad.json").exit_code == 2


def test_the_entry_point_ends_with_the_code() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "lucius.cli.main", "--url", NOWHERE, "get", "j1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 4
    assert "Traceback" not in ran.stderr


def test_a_refusal_names_every_fault_and_is_exit_code_3(scripted: Any, tmp_path: Path) -> None:
    faults = [
        {"code": "PAYLOAD_INVALID", "pointer": "/payload/sis/prompt_set", "detail": "must not be empty"},
        {"code": "ENVELOPE_INVALID", "pointer": "/mode", "detail": "unknown \x1b[31mmode"},
    ]
    problem = {"code": "PAYLOAD_INVALID", "detail": "2 faults", "errors": faults, "correlation_id": "c-7"}
    scripted.on("POST /v1/commands", problem, status=422)
    ended = lucius(scripted.url, "submit", command_file(tmp_path))
    assert ended.exit_code == 3
    for part in ("PAYLOAD_INVALID: 2 faults", "/payload/sis/prompt_set: must not be empty", "/mode", "c-7"):
        assert part in ended.stderr
    assert "\x1b" not in ended.stderr


def test_answers_map_to_exit_codes(scripted: Any) -> None:
    scripted.on("GET /v1/jobs/gone", {"code": "JOB_NOT_FOUND", "detail": "no such job"}, status=404)
    scripted.on("GET /v1/jobs/busy", {"code": "RATE_LIMITED"}, status=429, headers={"Retry-After": "7"})
    scripted.on("GET /v1/jobs/away", {"code": "UNAVAILABLE", "detail": "ledger"}, status=503)
    scripted.on("GET /v1/jobs/html", b"<html>", status=502)
    scripted.on("GET /v1/jobs/odd", b"hello")
    scripted.on("GET /v1/jobs/bare", b"", status=400)
    ended = {name: lucius(scripted.url, "get", name) for name in ("gone", "busy", "away", "html", "odd", "bare")}
    codes = {name: one.exit_code for name, one in ended.items()}
    assert codes == {"gone": 3, "busy": 3, "away": 4, "html": 4, "odd": 4, "bare": 3}
    assert "Try again in 7 s" in ended["busy"].stderr


def test_wait_that_the_server_cannot_hold_open_looks_now_and_then(scripted: Any) -> None:
    scripted.on("GET /v1/jobs/j1", {"code": "WAITS_SATURATED"}, status=429, headers={"Retry-After": "5"})
    scripted.on("GET /v1/jobs/j1", job(), job("SUCCEEDED"))
    ended = lucius(scripted.url, "get", "j1", "--wait", "-o", "json")
    assert (ended.exit_code, json.loads(ended.stdout)["status"]) == (0, "SUCCEEDED")
    assert ["wait_seconds" in path for path, _, _ in scripted.calls] == [True, False, True]


def test_submit_makes_relative_refs_absolute(scripted: Any, tmp_path: Path) -> None:
    scripted.on("POST /v1/commands", {"jobId": "j1", "status": "QUEUED"}, status=202)
    (tmp_path / "sub").mkdir()
    lucius(scripted.url, "submit", command_file(tmp_path / "sub", output_ref={"uri": "../o.json", "etag": 1}))
    lucius(scripted.url, "submit", command_file(tmp_path, input_ref="https://example.com/a", output_ref="s3://b/c"))
    stdin = json.dumps({"input_ref": "x.txt", "output_ref": ""})
    lucius(scripted.url, "submit", "-", "--idempotency-key", "k", input=stdin)
    first, second, third = (body or {} for _, body, _ in scripted.calls)
    assert first["input_ref"] == f"{tmp_path.as_uri()}/sub/a%20b.pdf"
    assert first["output_ref"] == {"uri": f"{tmp_path.as_uri()}/o.json", "etag": 1}
    assert (second["input_ref"], second["output_ref"]) == ("https://example.com/a", "s3://b/c")
    assert third["input_ref"] == f"{tmp_path.as_uri()}/x.txt"
    assert (third["output_ref"], third["idempotency_key"]) == ("", "k")


def test_submit_says_when_the_command_is_known(scripted: Any, tmp_path: Path) -> None:
    accepted = {"jobId": "j1", "status": "SUCCEEDED"}
    scripted.on("POST /v1/commands", accepted, status=202, headers={"Idempotency-Replayed": "true"})
    assert "submitted before" in lucius(scripted.url, "submit", command_file(tmp_path)).stdout
    shown = lucius(scripted.url, "submit", command_file(tmp_path), "-o", "json").stdout
    assert json.loads(shown) == accepted


@pytest.mark.parametrize(("status", "code"), [("SUCCEEDED", 0), ("FAILED_FINAL", 1), ("CANCELLED", 1)])
def test_watching_and_waiting_end_as_the_job_does(scripted: Any, tmp_path: Path, status: str, code: int) -> None:
    scripted.on("POST /v1/commands", {"jobId": "j1", "status": "QUEUED"}, status=202)
    scripted.on("GET /v1/jobs/j1", job("QUEUED"), job(), job(status))
    ended = lucius(scripted.url, "submit", command_file(tmp_path), "--watch")
    assert ended.exit_code == code
    assert f"job {status}" in ended.stdout
    assert "step ocr  PROCESSING  attempt 1  50 %" in ended.stdout
    for command in (("watch", "j1", "-o", "json"), ("get", "j1", "--wait", "-o", "json")):
        ended = lucius(scripted.url, *command)
        assert ended.exit_code == code
        assert json.loads(ended.stdout)["status"] == status


@pytest.mark.parametrize("command", [("watch", "j1"), ("get", "j1", "--wait")])
def test_a_wait_that_takes_too_long_is_exit_code_5(scripted: Any, command: tuple[str, ...]) -> None:
    scripted.on("GET /v1/jobs/j1", job())
    ended = lucius(scripted.url, *command, "--timeout", "0.3")
    assert ended.exit_code == 5
    assert "still IN_PROGRESS" in ended.stderr


def test_watching_outlasts_a_server_that_restarts(scripted: Any) -> None:
    scripted.on("GET /v1/jobs/j1", job())
    scripted.on("GET /v1/jobs/j1", {"code": "UNAVAILABLE"}, status=503)
    scripted.on("GET /v1/jobs/j1", job("SUCCEEDED"))
    assert lucius(scripted.url, "watch", "j1").exit_code == 0


def test_list_follows_pages_and_sends_filters(scripted: Any) -> None:
    scripted.on("GET /v1/jobs", {"items": [job()], "next": "c2"}, {"items": [job("PAUSED", jobId="j2")], "next": None})
    arguments = ("list", "--tenant", "demo", "--status", "paused", "--from", "2026-01-01T00:00:00Z", "--limit", "5")
    shown = lucius(scripted.url, *arguments)
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["JOB", "j1", "j2"]
    first, second = (call for call, _, _ in scripted.calls)
    assert "tenant_id=demo" in first
    assert "status=PAUSED" in first
    assert "created_from=2026-01-01" in first
    assert "cursor=c2" in second


def test_operations_are_posted_and_job_ids_are_quoted(scripted: Any) -> None:
    for verb in ("cancel", "pause", "resume", "redrive"):
        scripted.on(f"POST /v1/jobs/j1:{verb}", {"jobId": "j1", "status": "CANCELLING"}, status=202)
        assert "CANCELLING" in lucius(scripted.url, verb, "j1").stdout
    scripted.on("POST /v1/jobs/j1:cancel", {"code": "JOB_TERMINAL"}, status=409)
    scripted.on(
        "GET /v1/jobs/j1/events", {"events": [{"at": "now", "type": "ACCEPTED", "data": {"a": 1}}], "next": None}
    )
    assert "ACCEPTED" in lucius(scripted.url, "events", "j1").stdout
    lucius(scripted.url, "get", "../admin?x")
    assert scripted.calls[-1][0] == "GET /v1/jobs/..%2Fadmin%3Fx"


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "redrive"])
def test_operation_whose_answer_was_lost_is_asked_for_again_under_its_key(scripted: Any, verb: str) -> None:
    scripted.on(f"POST /v1/jobs/j1:{verb}", {"code": "UNAVAILABLE"}, status=503)
    scripted.on(f"POST /v1/jobs/j1:{verb}", {"jobId": "j1", "status": "PAUSED", "replayed": True}, status=202)
    ended = lucius(scripted.url, verb, "j1")
    assert (ended.exit_code, "PAUSED" in ended.stdout) == (0, True)
    first, second = scripted.keys
    assert first
    assert first == second
    lucius(scripted.url, verb, "j1")
    assert scripted.keys[-1] not in (None, first), "another command is another operation"


def test_operation_is_given_up_after_some_tries(scripted: Any) -> None:
    scripted.on("POST /v1/jobs/j1:pause", {"code": "UNAVAILABLE"}, status=503)
    assert lucius(scripted.url, "pause", "j1").exit_code == EXIT_UNREACHABLE
    assert len(scripted.calls) > 1
    assert len(set(scripted.keys)) == 1


def test_the_key_comes_from_option_variable_or_data_folder(scripted: Any, tmp_path: Path) -> None:
    scripted.on("GET /v1/jobs/j1", job())
    (tmp_path / ".lucius").mkdir()
    lucius(scripted.url, "get", "j1")
    (tmp_path / ".lucius" / "api-key").write_text("from-file\n")
    lucius(scripted.url, "get", "j1")
    lucius(scripted.url, "get", "j1", env={"LUCIUS_API_KEY": "from-env"})
    lucius(scripted.url, "--api-key", "from-option", "get", "j1", env={"LUCIUS_API_KEY": "from-env"})
    sent = [authorization.removeprefix("Bearer ") for _, _, authorization in scripted.calls]
    assert sent == ["", "from-file", "from-env", "from-option"]


def test_the_packaged_sample_reads_what_ships_and_writes_in_its_tenants_folder(tmp_path: Path) -> None:
    envelope = sample_command(tmp_path, "0123456789abcdef")
    assert envelope["input_ref"] == (SAMPLES / "contract.pdf").as_uri()
    assert (SAMPLES / "contract.pdf").read_bytes().startswith(b"%PDF-")
    assert envelope["output_ref"] == (tmp_path / "files/demo/sample/0123456789ab/answer.json").as_uri()
    example = json.loads((ROOT / "examples" / "commands" / "ocr_embedding_sis.json").read_bytes())
    assert example["payload"] == envelope["payload"]


def test_the_sample_says_how_it_ended(scripted: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.on("POST /v1/commands", {"jobId": "j1", "status": "QUEUED"}, status=202)
    scripted.on("GET /v1/jobs/j1", job("FAILED_FINAL", error={"code": "NO_TEXT", "message": "blank"}))
    assert not asyncio.run(run_sample(scripted.url, "key", tmp_path))
    assert "NO_TEXT: blank" in capsys.readouterr().out
    assert not asyncio.run(run_sample(NOWHERE, "key", tmp_path))
    assert "is unreachable" in capsys.readouterr().err
