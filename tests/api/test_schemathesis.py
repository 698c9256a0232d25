"""schemathesis over the OpenAPI document, against a real server: no 5xx, and no answer that is not documented.

Generated values alone hardly ever get past the first check, so each case is sent a second time with real ids, tokens
and request types in the places where the document asks for some.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from msgspec import Struct, field
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema
from tests.long_form import sized

from lucius.api.openapi import document
from lucius.settings import Settings

EXAMPLES_MAX = sized(8, 15)
DRESSED_MAX = sized(12, 10_000)
"""Cases of an operation that are sent a second time, with real things: a rehearsal, say, is a process each time."""
WAIT_SECONDS_MAX = 0.05
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")

DOCUMENT = document(Settings(wait_seconds_max=WAIT_SECONDS_MAX))
OPERATIONS = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]
CHECKED = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
]


RUNBOOK = """\
name: move
data_source: {type: manual, primary_key: Upn}
phases:
  - {name: first, offset: T-0, steps: [{name: a, worker_id: w, function: A, params: {Upn: "{{Upn}}"}}]}
  - {name: second, offset: T+1d, steps: [{name: b, worker_id: w, function: B}]}
"""
CSV = "Upn\nann\nbob\n"
RUNBOOK_PATHS = ("/v1/runbooks", "/v1/batches", "/v1/worker-")


class Server(Struct):
    """A server with a job, and a batch, in each of the states that answers depend on."""

    url: str
    key: str
    job_ids: list[str]
    directive: dict[str, Any]
    batch_ids: list[int]
    worker_job: str
    dressed: Counter[str] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def server(serve: Any) -> Server:
    memory = {"LUCIUS_LEDGER": "memory", "LUCIUS_BUS": "memory"}
    live = serve("--no-services", LUCIUS_WAIT_SECONDS_MAX=str(WAIT_SECONDS_MAX), **memory)
    with live.client() as client:
        return Server(live.url, live.key, *_prepared(client), *_prepared_batches(client))


def _prepared(client: httpx.Client) -> tuple[list[str], dict[str, Any]]:
    job_ids = []
    for number in range(4):
        envelope = {
            "tenant_id": "acme", "request_type": "OCR", "input_ref": f"https://a.example/{number}",
            "output_ref": "https://a.example/out", "payload": {}, "schema_version": "1",
        }  # fmt: skip
        job_ids.append(client.post("/v1/commands", json=envelope).raise_for_status().json()["jobId"])
    by_job: dict[str, dict[str, Any]] = {}
    while len(by_job) < 4:
        pulled = client.post("/v1/directives:pull", json={"service": "ocr", "max": 4}).raise_for_status()
        by_job |= {directive["jobId"]: directive for directive in pulled.json()["directives"]}
    client.post(f"/v1/jobs/{job_ids[0]}:pause").raise_for_status()
    client.post(f"/v1/jobs/{job_ids[1]}:cancel").raise_for_status()
    failed = by_job[job_ids[2]]
    body = {name: failed[name] for name in IDS} | {"status": "FAILED_FINAL"}
    headers = {"Lucius-Callback-Token": failed["callback_token"]}
    client.post("/v1/callbacks/result", json=body, headers=headers).raise_for_status()
    return job_ids, by_job[job_ids[3]]


def _prepared_batches(client: httpx.Client) -> tuple[list[int], str]:
    """One that runs with a failed member, one by hand, one that was cancelled."""
    client.post("/v1/runbooks", json={"yaml": RUNBOOK}).raise_for_status()
    batch_ids = []
    for advance in ("time", "manual", "manual"):
        body = {"runbook": "move", "csv": CSV, "advance": advance}
        batch_ids.append(client.post("/v1/batches", json=body).raise_for_status().json()["batch_id"])
    client.post(f"/v1/batches/{batch_ids[2]}:cancel").raise_for_status()
    jobs: list[dict[str, Any]] = []
    while len(jobs) < 2:
        pulled = client.post("/v1/worker-jobs:pull", json={"workerId": "w", "max": 2}).raise_for_status()
        jobs += pulled.json()["jobs"]
    failed = {"jobId": jobs[0]["jobId"], "status": "Failure", "error": {"message": "boom"}}
    client.post("/v1/worker-results", json={"results": [failed]}).raise_for_status()
    return batch_ids, jobs[1]["jobId"]


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    # A copy: cases are changed below, and their bodies are the examples that others use too.
    made = schemathesis.openapi.from_dict(deepcopy(DOCUMENT))
    made.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    return made


# Not `schema.parametrize()`: it spends seconds on cases while pytest collects, in each of its workers.
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_documented(operation: str, schema: BaseSchema, server: Server) -> None:
    bounds = settings(
        max_examples=EXAMPLES_MAX,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    (made,) = get_all_tests(schema=schema.include(name=operation), test_func=check, settings=bounds, given_kwargs={})
    _, test = made.ok()
    test(server=server)


def check(case: Any, server: Server) -> None:
    checks = CHECKS.get_by_names(CHECKED)
    headers = {"Authorization": f"Bearer {server.key}"}
    case.call_and_validate(base_url=server.url, headers=headers, checks=checks)
    if server.dressed[case.operation.label] < DRESSED_MAX and dress(case, server):
        server.dressed[case.operation.label] += 1
        case.call_and_validate(base_url=server.url, headers=headers, checks=checks)


def dress(case: Any, server: Server) -> bool:
    """Put real things where the case has made-up ones; whether there was such a place."""
    body = case.body if isinstance(case.body, dict) else None
    if case.path.startswith(RUNBOOK_PATHS):
        return dress_runbook(case, server, body)
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


def dress_runbook(case: Any, server: Server, body: dict[str, Any] | None) -> bool:
    real = {
        "yaml": RUNBOOK, "runbook": "move", "csv": CSV, "members": ["ann"], "workerId": "w",
        "jobIds": [server.worker_job], "start": "2031-01-01T00:00:00Z",
    }  # fmt: skip
    was = repr(body) + repr(case.path_parameters)
    parameters = case.path_parameters or {}
    if "name" in parameters:
        parameters["name"] = "move"
    if "batch_id" in parameters:
        parameters["batch_id"] = server.batch_ids[len(repr(case.query) + was) % len(server.batch_ids)]
    if body is not None:
        body.update({name: value for name, value in real.items() if name in body})
        for one in body["results"] if isinstance(body.get("results"), list) else []:
            if isinstance(one, dict):
                one["jobId"] = server.worker_job
    return was != repr(body) + repr(parameters)
