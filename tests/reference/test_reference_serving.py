"""The three services in one event loop, against an orchestrator over real HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lucius.platform import ServiceUnusable
from lucius.platform.state_folder import StateFolder
from lucius.reference.serving import SERVICES, run_services

SECONDS_MAX = 60.0


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / ".lucius" / "files" / "demo" / "input.txt"
    path.parent.mkdir(parents=True)
    path.write_text("The lanterns are lit at dusk. Nobody sleeps.")
    workspace = (tmp_path / "work" / "demo" / "job" / "STEP" / "1").as_uri()
    return {"input_ref": path.as_uri(), "workspace_ref": workspace}


def run_until(
    fake: Any, state: Path, condition: Callable[[], Any], names: Sequence[str] = ("ocr", "embedding", "sis")
) -> None:
    """Serve until the condition holds, then stop gracefully; fails if that takes too long."""

    async def run() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(SECONDS_MAX):
            running = asyncio.create_task(run_services(fake.url, "key", state, stop, names))
            while not condition() and not running.done():
                await asyncio.sleep(0.01)
            stop.set()
            await running

    asyncio.run(run())


def directives(fake: Any, text: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    payload = {"payload": {"prompt_set": ["When are the lanterns lit?"]}}
    return [
        fake.directive(1, "ocr", **{**text, **fields}),
        fake.directive(2, "embedding", **{**text, **fields}),
        fake.directive(3, "sis", **{**text, **fields, **payload}),
    ]


def test_each_service_acknowledges_and_reports(fake: Any, text: dict[str, Any], tmp_path: Path) -> None:
    fake.directives = directives(fake, text)
    run_until(fake, tmp_path / ".lucius" / "state", lambda: len(fake.of_kind("RESULT")) == 3)
    results = {body["stepId"]: body for body in fake.of_kind("RESULT")}
    assert {body["status"] for body in results.values()} == {"SUCCEEDED"}
    assert results["sis"]["artifacts"]["answers"][0]["answer"] == "The lanterns are lit at dusk."
    assert "output_ref" not in results["sis"]
    for job in ("job-1", "job-2", "job-3"):
        assert [kind for kind, body in fake.callbacks if body["jobId"] == job] == ["ACK", "RESULT"]
    assert sorted(path.name for path in (tmp_path / ".lucius" / "state").iterdir()) == ["embedding", "ocr", "sis"]


def test_only_the_last_step_writes_the_output(fake: Any, text: dict[str, Any], tmp_path: Path) -> None:
    output = tmp_path / ".lucius" / "files" / "demo" / "out" / "answer.json"
    ocr, embedding, sis = directives(fake, text, output_ref=output.as_uri())
    fake.directives = [{**ocr, "last_step": False}, {**embedding, "last_step": False}]
    run_until(fake, tmp_path / ".lucius" / "state", lambda: len(fake.of_kind("RESULT")) == 2)
    assert not output.exists()
    fake.directives = [{**sis, "last_step": True}]
    run_until(fake, tmp_path / ".lucius" / "state", lambda: len(fake.of_kind("RESULT")) == 3)
    assert json.loads(output.read_bytes())["answers"][0]["answer"] == "The lanterns are lit at dusk."
    assert [("output_ref" in body) for body in fake.of_kind("RESULT")] == [False, False, True]


def test_an_input_that_cannot_be_read_fails_the_step_for_good(fake: Any, text: dict[str, Any], tmp_path: Path) -> None:
    fake.directives = [fake.directive(1, "ocr", **{**text, "input_ref": f"{text['input_ref']}.gone"})]
    run_until(fake, tmp_path / ".lucius" / "state", lambda: fake.of_kind("RESULT"), ("ocr",))
    (result,) = fake.of_kind("RESULT")
    assert (result["status"], result["failure_class"]) == ("FAILED", "NON_RETRYABLE")
    assert result["error"]["code"] == "INPUT_NOT_FOUND"


def test_a_service_that_nobody_knows_is_refused_by_name(fake: Any, tmp_path: Path) -> None:
    with pytest.raises(ServiceUnusable, match=r"telepathy.*ocr, embedding, sis"):
        run_until(fake, tmp_path, lambda: False, ["ocr", "telepathy"])
    assert list(SERVICES) == ["ocr", "embedding", "sis"]


def test_services_that_cannot_start_end_together_and_say_why(fake: Any, tmp_path: Path) -> None:
    taken = StateFolder(tmp_path / ".lucius" / "state" / "sis")
    taken.claim()
    try:
        with pytest.raises(ServiceUnusable, match="in use by another process"):
            run_until(fake, tmp_path / ".lucius" / "state", lambda: False)
    finally:
        taken.release()


def test_an_endpoint_that_cannot_be_used_is_found_at_the_start(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUCIUS_SIS_URL", "not an address")
    with pytest.raises(ServiceUnusable, match="LUCIUS_SIS_URL"):
        run_until(fake, tmp_path, lambda: False)
    assert not fake.paths


STOPPED_WHEN_SERVED = """
import logging, os, signal, sys
from lucius.cli.main import cli

class Stop(logging.Handler):
    def emit(self, record):
        if "sis serves SIS" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

logging.getLogger("lucius.platform").addHandler(Stop())
cli(["up", "--port", "0", "--data", sys.argv[1]])
"""


# --- lucius platform, lucius up --------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    return {**kept, **more}


def lucius(tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lucius.cli.main", *arguments],
        env=environment(**more),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("by_environment", [True, False])
def test_the_command_serves_until_it_is_told_to_end(
    fake: Any, text: dict[str, Any], tmp_path: Path, by_environment: bool
) -> None:
    fake.directives = directives(fake, text)
    where = {"LUCIUS_ORCHESTRATOR_URL": fake.url, "LUCIUS_URL": "http://127.0.0.1:1"} if by_environment else {}
    options = [] if by_environment else ["--url", fake.url]
    with subprocess.Popen(
        [sys.executable, "-m", "lucius.cli.main", "--api-key", "key", *options, "platform", "ocr", "embedding", "sis"],
        env=environment(LUCIUS_PLATFORM_STATE=str(tmp_path / "state"), **where),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            deadline = time.monotonic() + SECONDS_MAX
            while len(fake.of_kind("RESULT")) < 3 and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    assert {body["status"] for body in fake.of_kind("RESULT")} == {"SUCCEEDED"}
    assert process.returncode == 0, said
    assert "sis serves SIS" in said
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["embedding", "ocr", "sis"]


@pytest.mark.parametrize(
    ("names", "settings", "said"),
    [
        (["telepathy"], {}, "there are ocr, embedding, sis"),
        ([], {}, "NAME"),
        (["ocr"], {"LUCIUS_PLATFORM_CONCURRENCY": "many"}, "LUCIUS_PLATFORM_CONCURRENCY"),
        (["ocr", "sis"], {"LUCIUS_PLATFORM_HEALTH_PORT": "18080"}, "LUCIUS_PLATFORM_HEALTH_PORT"),
        (["sis"], {"LUCIUS_EMBEDDING_URL": "http://127.0.0.1:1"}, "LUCIUS_EMBEDDING_MODEL"),
        (["ocr"], {"LUCIUS_ORCHESTRATOR_URL": "amqp://127.0.0.1"}, "amqp"),
    ],
)
def test_the_command_says_what_it_cannot_use(
    tmp_path: Path, names: list[str], settings: dict[str, str], said: str
) -> None:
    ended = lucius(tmp_path, "platform", *names, **settings)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_whose_services_cannot_start_ends_and_says_so(tmp_path: Path) -> None:
    taken = StateFolder(tmp_path / "data" / "services" / "ocr")
    taken.claim()
    try:
        ended = lucius(tmp_path, "up", "--port", "0", "--data", str(tmp_path / "data"))
    finally:
        taken.release()
    assert ended.returncode == 2, ended.stderr
    assert "the reference services cannot start" in ended.stderr
    assert "in use by another process" in ended.stderr


def test_a_server_without_a_trace_keeps_none_of_its_services_either(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["timeout", "--signal=TERM", "30", sys.executable, "-c", STOPPED_WHEN_SERVED, str(tmp_path / "data")],
        env=environment(LUCIUS_LEDGER="memory", LUCIUS_BUS="memory"),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "sis serves SIS" in ended.stderr
    assert not (tmp_path / "data" / "services").exists()


def test_the_services_load_with_nothing_but_the_base_install() -> None:
    extras = ("pypdf", "PIL", "numpy", "rapidocr_onnxruntime", "wordllama", "msgspec", "fastapi", "yaml")
    blocked = f"import sys; sys.modules.update(dict.fromkeys({extras}))"
    code = f"{blocked}; from lucius.reference.serving import SERVICES; print(*SERVICES)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "ocr embedding sis\n"
