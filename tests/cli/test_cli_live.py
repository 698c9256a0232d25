"""Every command for people against a real server, as text, as JSON and on a terminal of 80 columns."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from lucius.cli.main import cli

START_SECONDS_MAX = 60.0
API_KEY = "lk_a_key_of_the_command_line_tests"
BROKEN = "the page tree is broken; " * 40


class Live:
    """A server without services, and a worker that does as it is told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=30)

    def lucius(self, *arguments: str, code: int = 0) -> Any:
        ended = CliRunner().invoke(cli, ["--url", self.url, "--api-key", API_KEY, *arguments])
        assert ended.exit_code == code, ended.output
        return ended

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.lucius(*arguments, "--output", "json", code=code).stdout)

    def submit(self, folder: Path, **fields: Any) -> str:
        return str(self.json("submit", command_file(folder, **fields))["jobId"])

    def take(self, service: str) -> dict[str, Any]:
        body = {"service": service, "wait_seconds": 20}
        (directive,) = self._http.post("/v1/directives:pull", json=body).raise_for_status().json()["directives"]
        return dict(directive)

    def tell(self, directive: dict[str, Any], kind: str, **fields: Any) -> None:
        ids = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
        headers = {"Lucius-Callback-Token": directive["callback_token"]}
        answer = self._http.post(f"/v1/callbacks/{kind}", json={**ids, **fields}, headers=headers)
        assert answer.json()["outcome"] == "APPLIED", answer.text

    def fail(self, directive: dict[str, Any], failure_class: str = "NON_RETRYABLE") -> None:
        error = {"code": "BAD_INPUT", "message": BROKEN}
        self.tell(directive, "result", status="FAILED", failure_class=failure_class, error=error)

    def close(self) -> None:
        self._http.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    said = folder / "server.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    command = [
        sys.executable,
        "-m",
        "lucius.cli.main",
        "up",
        "--no-services",
        "--port",
        "0",
        "--data",
        str(folder / "d"),
    ]
    with (
        said.open("wb") as log,
        subprocess.Popen(command, env=environ | {"LUCIUS_API_KEY": API_KEY}, cwd=folder, stdout=log, stderr=log) as up,
    ):
        try:
            until = time.monotonic() + START_SECONDS_MAX
            while (found := re.search(r"is up at (\S+)", said.read_text("utf-8"))) is None:
                assert up.poll() is None, said.read_text("utf-8")
                assert time.monotonic() < until, "the server did not start in time"
                time.sleep(0.05)
            server = Live(found[1])
            yield server
            server.close()
        finally:
            up.terminate()
            up.wait(30)


def command_file(folder: Path, **fields: Any) -> str:
    """A command that is like no other: the folder is the test's own."""
    envelope = {
        "schema_version": "1", "tenant_id": "acme", "request_type": "OCR_EMBEDDING",
        "input_ref": f"https://files.example/{folder.name}/in.pdf",
        "output_ref": f"https://files.example/{folder.name}/out.json",
        "payload": {"ocr": {"dpi": 300}, "embedding": {}},
    }  # fmt: skip
    path = folder / "command.json"
    path.write_text(json.dumps({**envelope, **fields}))
    return str(path)


def on_terminal(live: Live, *arguments: str, columns: int = 80) -> tuple[int, str]:
    """The command's exit code and all that it wrote on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environ |= {"TERM": "xterm-256color", "LUCIUS_API_KEY": API_KEY, "LUCIUS_URL": live.url}
    command = [sys.executable, "-m", "lucius.cli.main", *arguments]
    with subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = bytearray()
        try:
            while part := os.read(ours, 65_536):
                written += part
        except OSError as error:
            if error.errno != errno.EIO:  # So ends the reading of a terminal that its last user has left.
                raise
        finally:
            os.close(ours)
        return process.wait(30), written.decode("utf-8", "replace")


def plain(written: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r", "").split("\n")


def test_validate_tells_good_commands_from_bad_ones(live: Live, tmp_path: Path) -> None:
    good = command_file(tmp_path)
    assert "ocr → embedding" in live.lucius("validate", good).stdout
    assert live.json("validate", good)["valid"] is True
    bad = command_file(tmp_path, payload={"ocr": {"dpi": "many"}, "nonsense": 1}, mode="FAST")
    ended = live.lucius("validate", bad, code=3)
    for pointer in ("/payload/ocr/dpi", "/payload/nonsense", "/mode"):
        assert f"  {pointer}: " in ended.stderr
    assert len(live.json("validate", bad, code=3)["errors"]) >= 3
    assert live.json("list", "--tenant", "acme")["items"] == [], "validating must not submit"


def test_protocols_lead_from_the_list_to_the_payload(live: Live, tmp_path: Path) -> None:
    assert "OCR_EMBEDDING_SIS  1        ocr → embedding → sis" in live.lucius("protocols").stdout
    names = [one["id"] for one in live.json("protocols")["items"]]
    for name in names:
        assert live.json("protocols", name)["id"] == name
        assert live.lucius("protocols", name).stdout.startswith(f"{name}, version 1")
    assert "prompt_set  yes       list of string" in live.lucius("protocols", "SIS").stdout
    ended = live.lucius("submit", command_file(tmp_path, request_type="NOPE"), code=3)
    assert "`lucius protocols` lists the request types." in ended.stderr


def test_job_is_explained_from_queue_to_end(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="explained")
    why = live.lucius("why", job_id).stdout
    # Another test's worker may just have asked.
    assert re.search(r"No service `ocr` has asked|Service ocr has not yet picked up", why), why
    assert "attempt 1 of step ocr" in why
    assert "lucius lanes" in why
    told = live.json("why", job_id)
    assert (told["jobId"], told["waiting_on"]["what"]) == (job_id, "ACK")
    assert told["commands"][0]["command"] == "lucius lanes"

    held = [line.split()[:5] for line in live.lucius("lanes").stdout.splitlines()]
    lane = str(live.json("get", job_id)["lane"])
    assert [lane, "ocr", "1", "0", "0"] in held
    known = sum(len(one["subscriptions"]) for one in live.json("lanes")["items"])
    assert known >= 16
    assert len(live.lucius("lanes", "--all").stdout.splitlines()) == known + 2

    assert "explained  no          global  allowed  1 / 1000" in live.lucius("tenants").stdout
    assert live.json("tenants")["inflight"] >= 1

    directive = live.take("ocr")
    live.tell(directive, "ack")
    assert "is working on attempt 1 of step ocr" in live.lucius("why", job_id).stdout
    live.lucius("pause", job_id)
    live.tell(directive, "result", status="SUCCEEDED", artifacts={})
    assert f"lucius resume {job_id}" in live.lucius("why", job_id).stdout
    live.lucius("resume", job_id)
    live.tell(directive := live.take("embedding"), "ack")
    live.fail(directive, "RETRYABLE")
    assert "Then attempt 2 is sent to service embedding." in live.lucius("why", job_id).stdout
    live.lucius("cancel", job_id)
    why = live.lucius("why", job_id).stdout
    assert "was cancelled at" in why
    assert "Cancellation was requested by" in why
    assert "JOB_NOT_FOUND" in live.lucius("why", "018f6b1e-7c00-7000-8000-0123456789ab", code=3).stderr


def test_job_whose_service_hangs_is_cancelled_by_force(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="hanging")
    directive = live.take("ocr")
    live.tell(directive, "ack", acked_by="host.17.ab")
    assert "and its service has reported no progress." in live.lucius("why", job_id).stdout
    assert re.search(r"^Progress +none reported$", live.lucius("get", job_id).stdout, re.MULTILINE)
    assert "--force needs a --reason" in live.lucius("cancel", job_id, "--force", code=2).stderr
    assert "CANCELLING" in live.lucius("cancel", job_id).stdout
    forced = live.lucius("cancel", job_id, "--force", "--reason", "ocr hangs", "--yes")
    assert forced.stdout.strip() == f"Job {job_id} CANCELLED"
    why = live.lucius("why", job_id).stdout
    assert re.search(r"Cancellation was forced by key:\S+, \S+ s ago: ocr hangs", why)


def test_failed_command_submitted_again_is_told_and_a_new_job_can_be_asked_for(live: Live, tmp_path: Path) -> None:
    file = command_file(tmp_path, tenant_id="again")
    job_id = str(live.json("submit", file)["jobId"])
    live.fail(live.take("ocr"))
    told = live.lucius("submit", file).stdout
    assert f"Job {job_id} FAILED_FINAL (not a new job: the same command was submitted before)" in told
    assert re.search(r"It ended FAILED_FINAL \S+ s ago with BAD_INPUT: ", told)
    assert f"lucius redrive {job_id}" in told
    new_id = live.json("submit", file, "--new")["jobId"]
    assert new_id != job_id
    live.lucius("cancel", new_id)
    assert (
        "leave out --idempotency-key" in live.lucius("submit", file, "--new", "--idempotency-key", "k", code=2).stderr
    )


def test_jobs_are_listed_by_what_they_were_given(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="searching", correlation_id="order 7", idempotency_key="key 7")
    other = live.submit(tmp_path, tenant_id="searching", correlation_id="order 8", idempotency_key="key 8")
    for option, value in (("--correlation-id", "order 7"), ("--key", "key 7")):
        assert [job["jobId"] for job in live.json("list", option, value)["items"]] == [job_id]
    assert "no protocol declares searchable fields" in live.lucius("list", "--payload", "a=1", code=3).stderr
    for one in (job_id, other):
        live.lucius("cancel", one)


def test_dead_letter_is_dismissed_with_a_reason(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="dismissing")
    live.fail(live.take("ocr"))
    assert job_id in live.lucius("dead-letters").stdout
    assert (
        "is off the dead letters: sent by mistake"
        in live.lucius("dismiss", job_id, "--reason", "sent by mistake").stdout
    )
    assert job_id not in live.lucius("dead-letters").stdout
    shown = live.lucius("dead-letters", "--dismissed").stdout
    assert re.search(rf"^{job_id}  key:\S+ +\S+ s ago +sent by mistake$", shown, re.MULTILINE)


def test_failed_job_is_a_dead_letter_and_fits_on_a_terminal(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="failing")
    live.fail(live.take("ocr"))
    assert "It ended at step ocr, attempt 1: BAD_INPUT" in live.lucius("why", job_id).stdout
    letters = live.lucius("dead-letters")
    assert re.search(rf"^{job_id}  failing +OCR_EMBEDDING +ocr +\S+ s ago +BAD_INPUT: ", letters.stdout, re.MULTILINE)
    assert live.json("dead-letters", "--limit", "5")["items"][0]["jobId"] == job_id
    commands = (
        ("get", job_id, "--attempts"), ("list",), ("events", job_id), ("why", job_id), ("dead-letters",), ("tenants",),
        ("lanes", "--all"), ("protocols",), ("protocols", "OCR_EMBEDDING_SIS"),
    )  # fmt: skip
    for command in commands:
        code, written = on_terminal(live, *command)
        assert code == 0, written
        assert [line for line in plain(written) if len(line.rstrip()) > 80] == [], command
        assert "…" not in written or command[0] == "dead-letters", f"{command} cuts something off"
    assert "\x1b[1;31mFAILED_FINAL" in on_terminal(live, "get", job_id)[1]


def test_watching_on_a_terminal_shows_the_end_whole(live: Live, tmp_path: Path) -> None:
    job_id = live.submit(tmp_path, tenant_id="watched")
    live.tell(directive := live.take("ocr"), "ack")
    live.tell(directive, "heartbeat", progress=0.25, note="page 1 of 4")
    code, written = on_terminal(live, "watch", job_id, "--timeout", "2")
    shown = "\n".join(plain(written))
    assert code == 5
    for part in ("Service ocr is working on attempt 1", "PROCESSING", "25 %", "page 1 of 4", "in 14 min", "still"):
        assert part in shown
    live.fail(directive)
    code, written = on_terminal(live, "watch", job_id)
    lines = plain(written)
    assert code == 1
    assert [line for line in lines if len(line.rstrip()) > 80] == []
    assert " ".join(" ".join(lines).split()).count("page tree is broken;") >= 80
    assert f"See `lucius why {job_id}`." in lines
