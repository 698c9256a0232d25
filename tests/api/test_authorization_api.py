"""Who may do what: credentials, roles, and tenants that never see each other."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from lucius.api.examples import EXAMPLES

NOBODY = "018f6b1e-7c00-7000-8000-0123456789ab"
ROUTES: list[tuple[str, str, str, bool]] = [
    ("POST", "/v1/commands", "submit", False),
    ("POST", "/v1/commands:validate", "submit", False),
    ("POST", "/v1/commands:batch", "submit", False),
    ("GET", "/v1/jobs", "read", False),
    ("GET", f"/v1/jobs/{NOBODY}", "read", False),
    ("GET", f"/v1/jobs/{NOBODY}/steps", "read", False),
    ("GET", f"/v1/jobs/{NOBODY}/events", "read", False),
    ("GET", f"/v1/jobs/{NOBODY}/command", "submit", False),
    ("POST", f"/v1/jobs/{NOBODY}:cancel", "operate", False),
    ("POST", f"/v1/jobs/{NOBODY}:pause", "operate", False),
    ("POST", f"/v1/jobs/{NOBODY}:resume", "operate", False),
    ("POST", f"/v1/jobs/{NOBODY}:redrive", "operate", False),
    ("POST", "/v1/operations", "operate", False),
    ("POST", "/v1/operations:preview", "operate", False),
    ("GET", "/v1/operations", "read", False),
    ("GET", f"/v1/operations/{NOBODY}", "read", False),
    ("GET", f"/v1/operations/{NOBODY}/outcomes", "read", False),
    ("POST", f"/v1/operations/{NOBODY}:pause", "operate", False),
    ("POST", f"/v1/operations/{NOBODY}:resume", "operate", False),
    ("POST", f"/v1/operations/{NOBODY}:abandon", "operate", False),
    ("POST", "/v1/directives:pull", "work", True),
    ("GET", "/v1/protocols", "read", False),
    ("GET", "/v1/protocols/OCR", "read", False),
    ("GET", "/v1/protocols/OCR/figures", "read", False),
    ("POST", "/v1/admin/outbox/retry", "operate", True),
    ("GET", "/v1/admin/outbox", "read", True),
    ("GET", "/v1/admin/dead-letters", "read", True),
    ("POST", f"/v1/admin/dead-letters/{NOBODY}:dismiss", "operate", True),
    ("POST", "/v1/admin/protocols:preview", "operate", True),
    ("GET", "/v1/admin/lanes", "read", True),
    ("GET", "/v1/admin/tenants", "read", False),
    ("GET", "/v1/admin/workers", "read", True),
    ("POST", "/v1/admin/prune", "admin", True),
    ("GET", f"/v1/archive/jobs/{NOBODY}", "read", False),
    ("GET", "/v1/notifications", "read", False),
    ("GET", "/v1/notifications/018f6b1e7c00-1", "read", False),
    ("POST", "/v1/notifications:test", "operate", False),
]
"""Every call that needs a credential: the role, and whether it must be held on all tenants."""

PER_JOB = ["", "/steps", "/events", "/command", ":cancel", ":pause", ":resume", ":redrive"]
ROLES = ("submit", "read", "work", "operate", "admin")
KEYS = {
    **{f"{role}-everywhere": ("*", [role]) for role in ROLES},
    **{f"{role}-at-acme": (["Acme"], [role]) for role in ROLES},
    "rival": (["rival"], ["submit", "read", "operate"]),
    "acme": (["acme"], ["submit", "read", "operate"]),
}


def key_of(name: str) -> str:
    return f"lk_{name}_0123456789"


@pytest.fixture
async def guarded(open_api: Any, tmp_path: Path) -> Any:
    """An application with a file of keys, one for each role, everywhere and at one tenant."""
    lines = []
    for name, (tenants, roles) in KEYS.items():
        digest = hashlib.sha256(key_of(name).encode()).hexdigest()
        lines.append({"name": name, "sha256": digest, "tenants": tenants, "roles": roles})
    file = tmp_path / "keys.yaml"
    file.write_text(json.dumps(lines))  # JSON is YAML.
    return await open_api(api_keys_file=str(file))


def body_for(api: Any, path: str) -> Any:
    if path in ("/v1/commands", "/v1/commands:validate"):
        return api.envelope()
    if path.endswith(":dismiss"):
        return {"reason": "because"}
    return {"/v1/commands:batch": {"commands": [api.envelope()]}, "/v1/directives:pull": {"service": "ocr"}}.get(path)


BULK_BODIES = {
    "/v1/operations": {"action": "pause", "filter": {}, "reason": "a test"},
    "/v1/operations:preview": {"action": "pause", "filter": {}},
    "/v1/admin/prune": EXAMPLES["pruneJobs"],
    "/v1/notifications:test": EXAMPLES["testNotification"],
    "/v1/admin/protocols:preview": EXAMPLES["previewProtocol"],
}


async def call(api: Any, method: str, path: str) -> Any:
    body = BULK_BODIES.get(path) or body_for(api, path)
    return await api.client.request(method, path, json=body if method == "POST" else None)


# --- Credentials -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer ", "Bearer lk_wrong", "Basic bGs6bGs=", "lk_of_the_api_tests_0123456789",
        "Bearer lk_of_the_api_tests_0123456789 x", "Bearer a.b.c", "Bearer é", "Bearer " + "x" * 20_000,
        "Bearer LK_OF_THE_API_TESTS_0123456789",
    ],
)  # fmt: skip
async def test_wrong_credentials_are_refused_everywhere(api: Any, header: str | None) -> None:
    del api.client.headers["Authorization"]
    headers = {} if header is None else {"Authorization": header.encode()}
    for method, path, _, _ in ROUTES:
        answer = await api.client.request(method, path, headers=headers)
        api.assert_problem(answer, 401, "UNAUTHENTICATED")
        assert header is None or len(header) < 20 or header not in answer.text


async def test_machines_need_no_credential(api: Any) -> None:
    del api.client.headers["Authorization"]
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert (await api.client.get(path)).status_code == 200


async def test_metrics_are_not_on_the_main_port(api: Any) -> None:
    api.assert_problem(await api.client.get("/metrics"), 404, "NOT_FOUND")


async def test_scheme_is_read_in_any_case(api: Any) -> None:
    token = api.client.headers["Authorization"].partition(" ")[2]
    assert (await api.client.get("/v1/jobs", headers={"Authorization": f"bearer {token}"})).status_code == 200


# --- Roles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_may_do_its_own_and_no_more(guarded: Any, role: str) -> None:
    for place, everywhere in (("everywhere", True), ("at-acme", False)):
        caller = guarded.with_key(key_of(f"{role}-{place}"))
        for method, path, needed, on_all_tenants in ROUTES:
            answer = await call(caller, method, path)
            if role in (needed, "admin") and (everywhere or not on_all_tenants):
                passed = answer.status_code in (200, 202) or answer.json()["code"] in ("JOB_NOT_FOUND", "NOT_FOUND")
                assert passed, (path, answer.text)
            else:
                problem = guarded.assert_problem(answer, 403, "FORBIDDEN")
                assert needed in problem["detail"]
        await caller.client.aclose()


async def test_refused_caller_changes_nothing(guarded: Any) -> None:
    job_id = await guarded.accepted()
    reader = guarded.with_key(key_of("read-everywhere"))
    for verb in ("cancel", "pause", "redrive"):
        guarded.assert_problem(await reader.operate(job_id, verb), 403, "FORBIDDEN")
    guarded.assert_problem(await reader.submit(), 403, "FORBIDDEN")
    assert await guarded.count() == 1
    assert [event["type"] for event in await guarded.events(job_id)] == ["ACCEPTED", "ATTEMPT_CREATED", "PUBLISHED"]


async def test_redrive_with_another_payload_needs_both_roles(guarded: Any) -> None:
    job_id = await guarded.accepted(tenant_id="acme")
    await guarded.fail()
    body = {"payload": {"language": "de"}}
    operator = guarded.with_key(key_of("operate-everywhere"))
    problem = guarded.assert_problem(await operator.operate(job_id, "redrive", body), 403, "FORBIDDEN", "/payload")
    assert "submit" in problem["detail"]
    submitter = guarded.with_key(key_of("submit-everywhere"))
    guarded.assert_problem(await submitter.operate(job_id, "redrive", body), 403, "FORBIDDEN")
    rival = guarded.with_key(key_of("rival"))
    guarded.assert_problem(await rival.operate(job_id, "redrive", body), 404, "JOB_NOT_FOUND")
    assert await guarded.count() == 1
    acme = guarded.with_key(key_of("acme"))
    assert (await acme.operate(job_id, "redrive", body)).status_code == 202


# --- Tenants ---------------------------------------------------------------------------------------------------------


async def test_another_tenants_job_is_not_found_in_any_route(guarded: Any) -> None:
    job_id = await guarded.accepted(tenant_id="acme")
    await guarded.fail()
    rival, acme = guarded.with_key(key_of("rival")), guarded.with_key(key_of("acme"))
    for path in PER_JOB:
        method = "POST" if path.startswith(":") else "GET"
        hidden = await rival.client.request(method, f"/v1/jobs/{job_id}{path}")
        unknown = await rival.client.request(method, f"/v1/jobs/{NOBODY}{path}")
        guarded.assert_problem(hidden, 404, "JOB_NOT_FOUND")
        assert hidden.json() | {"correlation_id": ""} == unknown.json() | {"correlation_id": ""}
        shown = await acme.client.request(method, f"/v1/jobs/{job_id}{path}")
        assert shown.status_code in (200, 202, 409)
    stream = await rival.client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "text/event-stream"})
    guarded.assert_problem(stream, 404, "JOB_NOT_FOUND")


async def test_lists_show_only_the_callers_tenants(guarded: Any) -> None:
    own = await guarded.accepted(tenant_id="rival")
    others = await guarded.accepted(tenant_id="acme")
    rival = guarded.with_key(key_of("rival"))

    async def found(**parameters: str) -> list[str]:
        answer = await rival.client.get("/v1/jobs", params=parameters)
        return [job["jobId"] for job in answer.json()["items"]]

    assert await found() == [own]
    assert await found(tenant_id="RIVAL ") == [own]
    assert await found(tenant_id="acme") == []
    assert await found(job_id_prefix=own[:20]) == [own]
    assert await found(job_id_prefix=others[:20]) == []


async def test_commands_for_another_tenant_are_refused_before_anything_else(guarded: Any) -> None:
    rival = guarded.with_key(key_of("rival"))
    for tenant in ("acme", "ACME", " acme "):
        broken = guarded.envelope(tenant_id=tenant, payload=3)
        problem = guarded.assert_problem(await rival.submit(broken), 403, "TENANT_FORBIDDEN", "/tenant_id")
        assert len(problem["errors"]) == 1, "the caller learns nothing else about tenants that are not its own"
        answer = await rival.client.post("/v1/commands:validate", json=broken)
        guarded.assert_problem(answer, 403, "TENANT_FORBIDDEN")
    both = [guarded.envelope(tenant_id="acme"), guarded.envelope(tenant_id="Rival")]
    results = (await rival.client.post("/v1/commands:batch", json={"commands": both})).json()["results"]
    assert (results[0]["code"], results[1]["replayed"]) == ("TENANT_FORBIDDEN", False)
    assert await guarded.count() == 1


async def test_equal_keys_of_two_tenants_are_two_jobs(guarded: Any) -> None:
    rival, acme = guarded.with_key(key_of("rival")), guarded.with_key(key_of("acme"))
    pairs = ((rival, "rival"), (acme, "acme"))
    answers = [await caller.submit(tenant_id=tenant, idempotency_key="k") for caller, tenant in pairs]
    assert [answer.json()["replayed"] for answer in answers] == [False, False]


async def test_audit_trail_names_the_caller(guarded: Any) -> None:
    acme = guarded.with_key(key_of("acme"))
    job_id = await acme.accepted()
    await acme.operate(job_id, "pause")
    assert (await guarded.events(job_id))[-1]["by"] == "key:acme"


async def test_token_of_the_issuer_carries_tenants_and_roles(open_api: Any, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | {"kid": "1", "use": "sig", "alg": "ES256"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
    issuer, audience = "https://issuer.example/", "lucius"
    api = await open_api(jwt_issuer=issuer, jwt_audience=audience, jwks_url=str(tmp_path / "jwks.json"))
    claims = {
        "iss": issuer, "aud": audience, "exp": int(time.time()) + 60, "sub": "ann", "tenants": ["Acme"],
        "roles": ["submit", "read"],
    }  # fmt: skip
    caller = api.with_key(jwt.encode(claims, key, "ES256", {"kid": "1"}))
    job_id = await caller.accepted()
    assert (await caller.job(job_id))["jobId"] == job_id
    api.assert_problem(await caller.submit(tenant_id="rival"), 403, "TENANT_FORBIDDEN")
    api.assert_problem(await caller.operate(job_id, "cancel"), 403, "FORBIDDEN")
    for wrong in ({"exp": int(time.time()) - 120}, {"aud": "other"}, {"iss": "https://other.example/"}):
        stranger = api.with_key(jwt.encode(claims | wrong, key, "ES256", {"kid": "1"}))
        api.assert_problem(await stranger.client.get("/v1/jobs"), 401, "UNAUTHENTICATED")
        await stranger.client.aclose()
    await caller.client.aclose()


# --- Secrets ---------------------------------------------------------------------------------------------------------


async def test_credentials_appear_in_no_error_and_no_log(api: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    own, wrong = api.client.headers["Authorization"].partition(" ")[2], "lk_somebody_elses_9876543210"
    strange = api.with_key(wrong)
    answers = [
        await api.submit(payload=3),
        await api.client.get("/v1/jobs?limit=0"),
        await api.client.get("/v1/nothing"),
        await api.client.delete("/v1/jobs"),
        await strange.submit(),
        await strange.client.get("/v1/admin/tenants"),
        await api.submit(input_ref="https://u:hunter2secret@a.example/x?sig=hunter2secret"),
    ]
    await strange.client.aclose()
    assert all(answer.status_code >= 400 for answer in answers)
    told = "".join(answer.text + str(answer.headers) for answer in answers)
    logged = caplog.text + json.dumps([vars(record) for record in caplog.records], default=repr)
    for secret in (own, wrong, "hunter2secret", "0123456789abcdef0123456789abcdef"):
        assert secret not in told
        assert secret not in logged


async def test_defect_is_logged_and_not_told(
    api: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*arguments: object) -> None:
        raise RuntimeError("the inside of the house")

    monkeypatch.setattr(type(api.context.queries), "jobs", broken)
    answer = await api.client.get("/v1/jobs", headers={"X-Correlation-Id": "find-me"})
    api.assert_problem(answer, 500, "INTERNAL")
    assert "house" not in answer.text
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (record.correlation_id, "the inside of the house" in caplog.text) == ("find-me", True)


async def test_no_such_address_and_method_are_problems(api: Any) -> None:
    for path in ("/", "/v1", "/v1/commands/", "/v1/jobs/", "/docs", "/v1/commands:explode", "/V1/jobs"):
        api.assert_problem(await api.client.get(path), 404, "NOT_FOUND")
    for method, path in (("GET", "/v1/commands"), ("DELETE", f"/v1/jobs/{NOBODY}"), ("PUT", "/healthz")):
        answer = await api.client.request(method, path)
        api.assert_problem(answer, 405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"]
