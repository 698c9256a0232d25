"""schemathesis over the OpenAPI document, against a real server: no 5xx, and no answer that is not documented.

Generated values alone hardly ever get past the first check, so each case is sent a second time with real ids, tokens
and request types in the places where the document asks for some.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from msgspec import Struct
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from lucius.api.openapi import document
from lucius.settings import Settings

EXAMPLES_MAX = 15
KEY = "lk_of_schemathesis_0123456789"
WAIT_SECONDS_MAX = 0.05
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")

schema = schemathesis.openapi.from_dict(document(Settings(wait_seconds_max=WAIT_SECONDS_MAX)))
schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
checks = CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


class Server(Struct):
    """A server with a job in each of the states that answers depend on."""

    url: str
    job_ids: list[str]
    directive: dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    environment = {
        "PATH": os.environ["PATH"],
        "LUCIUS_API_KEY": KEY,
        "LUCIUS_LEDGER": "memory",
        "LUCIUS_BUS": "memory",
        "LUCIUS_WAIT_SECONDS_MAX": str(WAIT_SECONDS_MAX),
    }
    command = [sys.executable, "-m", "lucius.cli.main", "up", "--port", "0", "--data", str(folder), "--no-services"]
    with (folder / "log").open("w+b") as log:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=log)
        try:
            assert process.stderr is not None
            greeting = process.stderr.readline().decode()
            found = re.search(r"http://[\w.:]+", greeting)
            assert found, greeting + process.stderr.read().decode()
            yield _prepared(found[0])
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=20)
            process.kill()


def _prepared(url: str) -> Server:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}) as client:
        job_ids = []
        for number in range(4):
            envelope = {
                "tenant_id": "acme", "request_type": "OCR", "input_ref": f"https://a.example/{number}",
                "output_ref": "https://a.example/out", "payload": {}, "schema_version": "1",
            }  # fmt: skip
            job_ids.append(client.post("/v1/commands", json=envelope).raise_for_status().json()["jobId"])
        client.post(f"/v1/jobs/{job_ids[0]}:pause").raise_for_status()
        client.post(f"/v1/jobs/{job_ids[1]}:cancel").raise_for_status()
        directives = []
        while len(directives) < 4:
            pulled = client.post("/v1/directives:pull", json={"service": "ocr", "max": 4}).raise_for_status()
            directives += pulled.json()["directives"]
        by_job = {directive["jobId"]: directive for directive in directives}
        failed = by_job[job_ids[2]]
        body = {name: failed[name] for name in IDS} | {"status": "FAILED_FINAL"}
        headers = {"Lucius-Callback-Token": failed["callback_token"]}
        client.post("/v1/callbacks/result", json=body, headers=headers).raise_for_status()
    return Server(url, job_ids, by_job[job_ids[3]])


@schema.parametrize()
@settings(
    max_examples=EXAMPLES_MAX,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_documented(case: Any, server: Server) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    case.call_and_validate(base_url=server.url, headers=headers, checks=checks)
    if dress(case, server):
        case.call_and_validate(base_url=server.url, headers=headers, checks=checks)


def dress(case: Any, server: Server) -> bool:
    """Put real things where the case has made-up ones; whether there was such a place."""
    body = case.body if isinstance(case.body, dict) else None
    if "job_id" in (case.path_parameters or {}):
        case.path_parameters["job_id"] = server.job_ids[len(repr(case.query) + repr(case.body)) % len(server.job_ids)]
        return True
    if case.path.startswith("/v1/callbacks/"):
        case.headers = {"Lucius-Callback-Token": server.directive["callback_token"]}
        if body is not None:
            body.update({name: server.directive[name] for name in IDS})
        return True
    if case.path == "/v1/callbacks:batch" and body is not None and isinstance(body.get("callbacks"), list):
        ids = {name: server.directive[name] for name in (*IDS, "callback_token")}
        body["callbacks"] = [{**one, **ids} if isinstance(one, dict) else one for one in body["callbacks"]]
        return True
    if case.path.startswith("/v1/commands") and body is not None:
        commands = body.get("commands") if case.path.endswith(":batch") else [body]
        for one in commands if isinstance(commands, list) else []:
            if isinstance(one, dict):
                one.update(request_type="OCR", schema_version="1", payload={}, input_ref="https://a.example/in")
        return True
    if case.path == "/v1/directives:pull" and body is not None:
        body["service"] = "ocr"
        return True
    return False
