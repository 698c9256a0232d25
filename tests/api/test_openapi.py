"""The OpenAPI document: valid, whole, and true of what the server takes and answers."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31
from starlette.routing import Route

from lucius.api.app import create_app
from lucius.api.examples import EXAMPLES
from lucius.api.openapi import document
from lucius.domain.errors import STATUS_OF
from lucius.settings import Settings

DOCUMENT = document(Settings())
OPERATIONS = [
    pytest.param(path, method, operation, id=operation["operationId"])
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
MESSAGES = ("envelope", "ack", "result", "heartbeat", "directive")


def validator_of(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """A validator for a schema that refers to the document's components."""
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole, offline=True, validate_formats=True)


def published(name: str) -> dict[str, Any]:
    return dict(json.loads(resources.files("lucius.domain.schemas").joinpath(f"{name}.json").read_bytes()))


def test_document_is_openapi_31() -> None:
    jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(DOCUMENT)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_component_is_a_schema_and_its_examples_meet_it(name: str) -> None:
    schema = DOCUMENT["components"]["schemas"][name]
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    validator = validator_of(schema)
    for example in schema.get("examples", []):
        validator.validate(example)


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert used == set(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_operation_is_described_whole(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["tags"]
    named = set(re.findall(r"{(\w+)}", path))
    assert named == {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
    assert all(p["description"] for p in operation.get("parameters", []))
    responses = operation["responses"]
    for status, response in responses.items():
        assert response["content"], "every answer says what it holds"
        if status >= "400" and not (path == "/readyz" and status == "503"):
            assert set(response["content"]) == {"application/problem+json"}
            codes = response["description"].split(", ")
            assert all(STATUS_OF[code] == int(status) for code in codes)
    assert {"405", "503"} <= set(responses)
    if operation["security"]:
        assert {"401", "403"} <= set(responses)
    if "requestBody" in operation:
        assert {"413", "415"} <= set(responses)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_meets_the_schema_of_its_body(name: str) -> None:
    (operation,) = [p.values[2] for p in OPERATIONS if p.values[2]["operationId"] == name]
    content = operation["requestBody"]["content"]["application/json"]
    (shown,) = content["examples"].values()
    assert shown["value"] == EXAMPLES[name]
    validator_of(content["schema"]).validate(EXAMPLES[name])


def test_every_body_has_an_example() -> None:
    plain = {"pauseJob", "resumeJob", "redriveJob", "retryOutbox"}
    with_body = {p.values[2]["operationId"] for p in OPERATIONS if "requestBody" in p.values[2]}
    assert with_body - plain == set(EXAMPLES)


def test_operation_ids_are_unique() -> None:
    names = [p.values[2]["operationId"] for p in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_come_from_the_published_files(name: str) -> None:
    schema = published(name)
    jsonschema_rs.meta.validate(schema)
    component = DOCUMENT["components"]["schemas"][name.capitalize()]
    assert component == {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for example in schema.get("examples", []):
        validator.validate(example)


async def test_document_names_every_route_and_no_other(api: Any) -> None:
    routes = {
        (route.path, method.lower())
        for route in create_app(api.context).routes
        if isinstance(route, Route)
        for method in (route.methods or ()) - {"HEAD"}
    }
    assert routes - {("/openapi.json", "get")} == {(p.values[0], p.values[1]) for p in OPERATIONS}
    assert (await api.client.get("/openapi.json")).json()["paths"].keys() == DOCUMENT["paths"].keys()


async def test_document_states_the_limits_that_are_set(open_api: Any) -> None:
    api = await open_api(wait_seconds_max=3.0, page_size_max=7, batch_commands_max=2, batch_callbacks_max=5, pull_max=4)
    schemas = (await api.client.get("/openapi.json")).json()["components"]["schemas"]
    assert (schemas["WaitSeconds"]["maximum"], schemas["PageSize"]["maximum"]) == (3, 7)
    assert schemas["CommandBatch"]["properties"]["commands"]["maxItems"] == 2
    assert schemas["CallbackBatch"]["properties"]["callbacks"]["maxItems"] == 5
    assert schemas["Pull"]["properties"]["max"]["maximum"] == 4
    api.assert_problem(await api.client.get("/v1/jobs?limit=8"), 422, "ENVELOPE_INVALID")


async def test_every_field_of_an_answer_is_documented(api: Any) -> None:
    job_id = await api.accepted(api.envelope_of_three())
    job = await api.job(job_id)
    (step, *_) = (await api.client.get(f"/v1/jobs/{job_id}/steps")).json()["steps"]
    (tenant, *_) = (await api.client.get("/v1/admin/tenants")).json()["items"]
    protocol = (await api.client.get("/v1/protocols/OCR")).json()
    for name, shown in (("Job", job), ("Step", step), ("Attempt", step["attempts"][0]), ("Tenant", tenant),
                        ("Protocol", protocol)):  # fmt: skip
        assert set(shown) == set(DOCUMENT["components"]["schemas"][name]["properties"]), name


async def test_examples_of_commands_are_taken(api: Any) -> None:
    assert (await api.client.post("/v1/commands", json=EXAMPLES["submitCommand"])).status_code == 202
    told = (await api.client.post("/v1/commands:validate", json=EXAMPLES["validateCommand"])).json()
    assert told["valid"] is True
    (result,) = (await api.client.post("/v1/commands:batch", json=EXAMPLES["submitCommands"])).json()["results"]
    assert result["replayed"] is True
    pulled = await api.client.post("/v1/directives:pull", json=EXAMPLES["pullDirectives"])
    assert pulled.status_code == 200


async def test_answers_and_directives_meet_their_schemas(api: Any) -> None:
    """The whole life of two jobs, one of them unhappy, held against the document."""

    def meets(name: str, value: Any) -> None:
        validator_of({"$ref": f"#/components/schemas/{name}"}).validate(value)

    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    good, bad = [await api.accepted(api.envelope_of_three(traceparent=trace)) for _ in range(2)]
    for service in ("ocr", "embedding", "sis"):
        for _ in range(2 if service == "ocr" else 1):
            directive = await api.take(service)
            jsonschema_rs.Draft202012Validator(published("directive"), validate_formats=True).validate(directive)
            assert directive["traceparent"].split("-")[1] == "a" * 32
            if directive["jobId"] == bad:
                await api.result(directive, "FAILED_FINAL", error={"code": "E", "message": "m"})
                continue
            meets("CallbackOutcome", (await api.ack(directive)).json())
            meets("CallbackOutcome", (await api.result(directive)).json())
    for job_id in (good, bad):
        meets("Job", await api.job(job_id))
        meets("Steps", (await api.client.get(f"/v1/jobs/{job_id}/steps")).json())
        meets("Events", (await api.client.get(f"/v1/jobs/{job_id}/events")).json())
    assert [(await api.job(job_id))["status"] for job_id in (good, bad)] == ["SUCCEEDED", "FAILED_FINAL"]
    for path, name in (
        ("/v1/jobs", "JobList"), ("/v1/protocols", "ProtocolList"), ("/v1/protocols/OCR", "Protocol"),
        ("/v1/admin/outbox", "OutboxList"), ("/v1/admin/dead-letters", "DeadLetters"), ("/v1/admin/lanes", "LaneList"),
        ("/v1/admin/tenants", "TenantList"), ("/healthz", "Health"), ("/readyz", "Health"),
    ):  # fmt: skip
        meets(name, (await api.client.get(path)).json())
    meets("Problem", (await api.submit(payload=3)).json())
