"""Lanes, workers, tenants, protocols, submitting and the audit trail, in a real browser."""

from __future__ import annotations

import time
import uuid

import pytest
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, ADMIN, HOSTILE, OPERATOR, READER, Server

INSTANCE = "reader-<b>7f9c</b>"
LATE_SECONDS_MAX = 10.0


@pytest.fixture(scope="module")
def scene(server: Server) -> dict[str, str]:
    """An instance that failed once, a tenant with something of everything, a job that was paused for a reason."""
    tenant = f"scene-{uuid.uuid4().hex[:8]}"
    failed, done, paused = (
        server.submit(tenant_id=tenant, request_type="INVOICE", payload={"customer": "c1"}, idempotency_key=name)
        for name in ("failed", "done", "paused")
    )
    headers = {"Lucius-Instance": INSTANCE, "Lucius-Version": "1.4.2"}
    for job_id, status in ((failed, "FAILED"), (done, "SUCCEEDED")):
        directive = server.take(job_id, "reader", headers)
        server.call_back("ack", directive, acked_by=INSTANCE)
        more = {"artifacts": {}} if status == "SUCCEEDED" else {
            "failure_class": "NON_RETRYABLE", "error": {"code": "BLANK_PAGE", "message": HOSTILE},
        }  # fmt: skip
        server.call_back("result", directive, status=status, **more)
    server.client.post(f"/v1/jobs/{paused}:pause", json={"reason": f"why {tenant} {HOSTILE[:100]}"})
    return {"tenant": tenant, "failed": failed, "done": done, "paused": paused}


def test_lanes_show_who_waits_for_whom_and_all_sixteen_on_request(
    server: Server, open_tab: OpenTab, scene: dict[str, str]
) -> None:
    tab = open_tab(READER)
    tab.go("/lanes")
    assert scene["tenant"] in tab.text("#piece-lanes")
    tab.page.click("text=Show all 16")
    tab.page.wait_for_selector("#piece-lanes [aria-label=Lanes] tbody th >> nth=15")
    assert tab.page.locator("#piece-lanes button").count() == 0


def test_workers_are_shown_with_their_failures(server: Server, open_tab: OpenTab, scene: dict[str, str]) -> None:
    tab = open_tab(READER)
    tab.go("/workers?absent=1")
    row = f"#piece-workers tr:has-text('{INSTANCE}')"
    tab.page.wait_for_selector(f"{row} td:has-text('1.4.2')")
    tab.page.wait_for_selector(f"{row} td.failing:text-is('1')", timeout=LATE_SECONDS_MAX * 1000)


def test_tenants_are_counted_and_lead_to_their_jobs(server: Server, open_tab: OpenTab, scene: dict[str, str]) -> None:
    tab = open_tab(READER)
    tab.go(f"/tenants?name={scene['tenant'][:12]}&order=failed&window=day")
    (row,) = tab.page.locator("#piece-tenants tbody tr").all()
    names = ("inflight", "limit", "accepted", "refused", "ended", "failed")
    cells = dict(zip(names, row.locator("td.num").all(), strict=True))
    shown = {name: cell.inner_text() for name, cell in cells.items()}
    assert (shown["accepted"], shown["ended"], shown["failed"], shown["refused"]) == ("3", "2", "1", "0")
    assert "Ended and failed are jobs that ended in that time" in tab.text("#piece-tenants")
    cells["failed"].locator("a").click()
    tab.page.wait_for_selector(f"#piece-list :text('{scene['failed']}')")


def test_refused_commands_are_counted(server: Server, open_tab: OpenTab) -> None:
    tenant = f"slow-{uuid.uuid4().hex[:8]}"
    (server.folder / "registry" / "tenants").mkdir(exist_ok=True)
    (server.folder / "registry" / "tenants" / f"{tenant}.yaml").write_text(f"id: {tenant}\nmax_inflight: 1\n")
    body = {
        "tenant_id": tenant, "request_type": "OCR", "input_ref": "https://a.example/1", "schema_version": "1",
        "output_ref": "https://a.example/2", "payload": {"language": "en"},
    }  # fmt: skip
    deadline = time.monotonic() + LATE_SECONDS_MAX
    codes: list[str] = []
    while "TENANT_SATURATED" not in codes and time.monotonic() < deadline:
        answer = server.client.post("/v1/commands", json=body | {"idempotency_key": str(len(codes))}).json()
        codes.append(answer.get("code", "TAKEN"))
        time.sleep(0.1)  # The registry is read every now and then.
    tab = open_tab(ADMIN)
    tab.go(f"/tenants?name={tenant}")
    tab.page.wait_for_selector("#piece-tenants td.failing[data-label=Refused]", timeout=2 * LATE_SECONDS_MAX * 1000)


def test_protocol_has_versions_durations_and_policies(server: Server, open_tab: OpenTab, scene: dict[str, str]) -> None:
    tab = open_tab(READER)
    tab.go("/protocols")
    tab.page.click("#piece-list a:text-is('INVOICE')")
    tab.page.wait_for_selector("#piece-figures .chip:text-is('current')")
    assert "no job has succeeded yet" not in tab.text("#piece-figures")
    assert "max attempts" in tab.text()
    assert "searchable by customer" in tab.text()
    assert tab.page.locator("a:text-is('Submit one')").count() == 0, "a reader may not submit"


@pytest.mark.acts("/submit")
def test_form_submits_shows_faults_at_their_fields_and_leads_to_the_job(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(OPERATOR)
    tab.go("/submit")
    tab.page.select_option("select[name=request_type]", "OCR_EMBEDDING_SIS")
    tab.page.click("button:has-text('Show its form')")
    tab.page.fill("[name='field:/tenant_id']", "a/b")
    tab.page.fill("[name='field:/payload/embedding/chunk_size']", "many <b>")
    tab.page.click("button:text-is('Submit')")
    assert "must be a number" in tab.text(".field:has([name='field:/payload/embedding/chunk_size'])")
    tab.page.fill("[name='field:/payload/embedding/chunk_size']", "0")
    tab.page.click("button:text-is('Submit')")
    wrong = tab.page.locator(".field.wrong").all_inner_texts()
    assert [text.split()[0] for text in wrong] == ["Tenant", "Input", "Output", "chunk_size", "prompt_set"]
    assert tab.violations() == []
    tab.page.fill("[name='field:/tenant_id']", "acme")
    tab.page.fill("[name='field:/input_ref']", "https://documents.example/in/9.pdf")
    tab.page.fill("[name='field:/output_ref']", '{"uri": "https://documents.example/out/9.json"}')
    tab.page.fill("[name='field:/payload/embedding/chunk_size']", "800")
    tab.page.fill("[name='field:/payload/sis/prompt_set']", '["When does it end?"]')
    tab.page.select_option("[name='field:/payload/sis/output']", '"json"')
    tab.page.click("button:has-text('Check it only')")
    assert "This command is valid" in tab.text()
    tab.page.click("button:text-is('Submit')")
    tab.page.wait_for_selector("text=The command was accepted as this job.")
    steps = server.client.get(f"/v1/jobs/{tab.page.url.split('/')[-1].split('?')[0]}/steps").json()["steps"]
    assert [step["stepId"] for step in steps] == ["ocr", "embedding", "sis"]


def test_another_like_this_has_the_values_of_the_job(server: Server, open_tab: OpenTab, scene: dict[str, str]) -> None:
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{scene['done']}")
    tab.page.click("a:has-text('Submit another like this')")
    assert tab.page.input_value("[name='field:/tenant_id']") == scene["tenant"]
    assert tab.page.input_value("[name='field:/payload/customer']") == "c1"
    tab.page.click("button:text-is('Submit')")
    tab.page.wait_for_selector("text=The command was accepted as this job.")
    assert scene["done"] not in tab.text("h1")
    tab.go(f"/submit?like={scene['done']}&as=json")
    tab.page.fill("#envelope", '{"tenant_id": 1}')
    tab.page.click("button:text-is('Submit')")
    tab.page.wait_for_selector("[role=alert] code:text-is('/tenant_id')")


def test_audit_shows_who_did_what_and_why_within_tenants(
    server: Server, open_tab: OpenTab, scene: dict[str, str]
) -> None:
    tab = open_tab(OPERATOR)
    tab.go(f"/audit?tenant_id={scene['tenant']}")
    (row,) = tab.page.locator("#piece-list tbody tr").all()
    assert f"why {scene['tenant']} <script>" in row.inner_text()
    boxes = [tab.page.locator(f".filters [name={name}]").bounding_box() for name in ("by", "kind", "target")]
    assert len({(box["y"], box["height"]) for box in boxes if box is not None}) == 1, "fields are in line"
    row.locator(f"a:text-is('{scene['paused']}')").click()
    tab.page.wait_for_selector("svg.timeline")
    other = open_tab(ACME)
    other.go("/audit")
    assert scene["tenant"] not in other.text()
    assert "Lanes" not in other.text("nav")


def test_reader_sees_no_submit_and_no_buttons(server: Server, open_tab: OpenTab, scene: dict[str, str]) -> None:
    tab = open_tab(READER)
    for path in ("/lanes", "/workers", "/tenants", "/protocols", "/audit", "/runbooks"):
        tab.go(path)
        assert tab.page.locator("main form[method=post]").count() == 0, path
    assert "Submit" not in tab.text("nav")
    tab.go("/submit")
    assert "needs the role submit" in tab.text()
