"""Every page and every act, in a real browser, by each role."""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import ACME, ADMIN, ONLY, OPERATOR, READER, Server

TRIES_MAX = 5


def unique(code: str) -> str:
    """An error code that no other test uses."""
    return f"{code}_{uuid.uuid4().hex[:8].upper()}"


@contextmanager
def signed_in(server: Server, key: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/console/sign-in", data={"key": key})
        yield client


def csrf_of(html: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', html)
    assert found
    return found[1]


def act(tab: Tab, label: str, words: str, reason: str) -> None:
    tab.page.click(f"summary:has-text('{label}')")
    tab.page.fill("details[open] input[name=reason]", reason)
    tab.page.click(f"details[open] button:has-text('{words}')")


def test_overview_counts_and_leads_to_what_waits(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(ADMIN)
    tab.page.mouse.move(0, 0)  # What is under the pointer holds still.
    tab.until_live()
    assert "accepted before and failed since is counted, and not listed" in tab.text("#piece-counts")
    for words in ("What waits now", "Accepted, ended, failed", "Lanes, the last hour", "ledger: ok"):
        assert words in tab.text()
    # Not the tenant's own row: others, of tests before this one, may have more in flight.
    in_all = "#piece-inflight tbody tr:first-child td:nth-child(2)"
    open_jobs = int(tab.text(in_all).replace(" ", ""))
    waiting = server.submit(tenant_id="waiting-tenant")
    tab.page.wait_for_selector(f"{in_all}:text-is('{open_jobs + 1}')", timeout=3_000)
    tab.page.click("#piece-now a:has-text('a service to pick it up')")
    tab.page.wait_for_selector(f"text={waiting}")
    assert "waits_for=ACK" in tab.page.url


def test_list_filters_by_its_address_and_grows_while_it_is_watched(server: Server, open_tab: OpenTab) -> None:
    tenant = f"tenant-{uuid.uuid4().hex[:8]}"
    first = server.submit(tenant_id=tenant)
    tab = open_tab(READER)
    tab.go("/jobs")
    tab.page.fill("[name=tenant_id]", tenant)
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_selector(f"text={first}")
    assert f"tenant_id={tenant}" in tab.page.url
    assert tab.page.locator("tbody tr").count() == 1
    tab.until_live()
    second = server.submit(tenant_id=tenant)
    tab.page.wait_for_selector(f"text={second}", timeout=3_000)
    tab.page.click("#pause")
    third = server.submit(tenant_id=tenant)
    tab.page.wait_for_selector("#piece-list.stale")
    assert third not in tab.text("#piece-list")
    tab.page.click("#pause")
    tab.page.wait_for_selector(f"text={third}")
    assert tab.page.locator(".tools button").count() == 0, "a reader sees no buttons"


def test_export_has_what_matches_and_no_formulas(server: Server) -> None:
    job_id, code = server.submit(), unique("EXPORT")
    server.fail(job_id, "=1+1", code)
    signature = server.job(job_id)["error_signature"]
    with signed_in(server, READER) as client:
        given = {"error_signature": signature, "format": "csv"}
        answer = client.get("/console/jobs/export", params=given)
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert [(row["jobId"], row["error_message"]) for row in rows] == [(job_id, "'=1+1")]
        lines = client.get("/console/jobs/export", params={**given, "format": "jsonl"}).text.splitlines()
        assert len(lines) == 1
        assert job_id in lines[0]


def test_job_shows_its_wait_with_a_countdown_and_follows_its_life(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    tab = open_tab(READER, timezone_id="Asia/Tokyo")
    tab.go(f"/jobs/{job_id}")
    tab.until_live()
    assert re.search("has not yet picked up|asks for|has asked for work", tab.text(".sentence"))
    assert re.search(r"in \d+ (s|min)", tab.text(".sentence strong"))
    time = tab.page.locator("#piece-events time").first
    assert time.get_attribute("title", timeout=1_000).endswith("UTC")  # type: ignore[union-attr]
    assert time.inner_text()[:19] != (time.get_attribute("title") or "")[:19]
    server.call_back("ack", server.take(job_id), status="ACKED")
    assert tab.page.locator("svg.timeline .t-queued").count() == 1
    tab.page.wait_for_selector(".sentence:has-text('is working on')", timeout=3_000)
    assert tab.text("#piece-state").count("lease ends") == 1
    assert tab.page.locator("svg.timeline .t-busy").count() == 1
    assert tab.page.locator("svg.timeline .m-ack").count() == 1
    assert tab.page.locator("summary:has-text('Cancel')").count() == 0, "a reader sees no buttons"


@pytest.mark.acts("/jobs/{job_id}/pause", "/jobs/{job_id}/resume", "/jobs/{job_id}/cancel", "/jobs/{job_id}/redrive")
def test_operator_pauses_resumes_cancels_and_redrives_with_a_reason(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{job_id}")
    act(tab, "Pause …", "Pause this job", "to look at it")
    tab.page.wait_for_selector("text=The job is paused.")
    act(tab, "Resume …", "Resume this job", "it is fine")
    tab.page.wait_for_selector("text=The job goes on.")
    act(tab, "Cancel …", "Cancel this job", "not needed <b>any</b> more")
    tab.page.wait_for_selector("text=The job is being cancelled.")
    events = server.client.get(f"/v1/jobs/{job_id}/events").json()["events"]
    told = {event["type"]: (event["by"], event["reason"]) for event in events if "reason" in event}
    assert told == {
        "PAUSED": ("key:operator", "to look at it"),
        "RESUMED": ("key:operator", "it is fine"),
        "CANCEL_ASKED": ("key:operator", "not needed <b>any</b> more"),
    }
    failed = server.submit()
    server.fail(failed)
    tab.go(f"/jobs/{failed}")
    act(tab, "Redrive …", "Redrive this job", "the scanner is fixed")
    tab.page.wait_for_selector("text=This job redrives the one before")
    assert failed in tab.text("#piece-state")
    tab.page.click(f"a:has-text('{failed}')")
    tab.page.wait_for_selector("text=Redriven as")


@pytest.mark.acts("/jobs/{job_id}/new-payload")
def test_job_is_redriven_with_another_payload_and_a_reason(server: Server, open_tab: OpenTab) -> None:
    failed = server.submit(payload={"language": "en", "dpi": 300})
    server.fail(failed)
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{failed}")
    tab.page.click("a:has-text('Redrive with another payload')")
    shown = tab.page.input_value("#payload")
    assert json.loads(shown) == {"language": "en", "dpi": 300}
    for text, words in (("{", "JSON"), ('{"language": 5}', "/payload/language")):
        tab.page.fill("#payload", text)
        tab.page.fill("#why", "wrong <b>language</b>")
        tab.page.click("button:text-is('Redrive with this payload')")
        assert words in tab.text("[role=alert]")
        assert (tab.page.input_value("#payload"), tab.page.input_value("#why")) == (text, "wrong <b>language</b>")
    assert tab.violations() == []
    tab.page.fill("#payload", shown.replace('"en"', '"de"'))
    tab.page.click("button:text-is('Redrive with this payload')")
    tab.page.wait_for_selector("text=This job redrives the one before with another payload")
    assert "wrong <b>language</b>" in tab.text("#piece-events")
    new = tab.page.url.split("/")[-1].partition("?")[0]
    assert server.take(new)["payload"] == {"language": "de", "dpi": 300}
    tab.page.click(f"#piece-state a:has-text('{failed}')")
    tab.page.wait_for_selector("text=Redriven as")
    tab.go(f"/audit?target={failed}")
    assert "wrong <b>language</b>" in tab.text("#piece-list")
    tab.go(f"/jobs/{new}/new-payload")
    assert "Only a job that failed or was cancelled can be redriven" in tab.text()
    assert tab.page.locator("main form").count() == 0


def test_new_payload_needs_the_role_to_submit_too(server: Server) -> None:
    failed = server.submit()
    server.fail(failed)
    with signed_in(server, ONLY["operate"]) as client:
        page = client.get(f"/console/jobs/{failed}/new-payload").text
        assert "needs the role submit too" in page
        assert "<textarea" not in page
        sent = {"csrf": csrf_of(page), "reason": "x", "payload": '{"language": "de"}'}
        answer = client.post(f"/console/jobs/{failed}/new-payload", data=sent)
        assert (answer.status_code, "needs the role submit" in answer.text) == (403, True)


def test_stale_button_is_answered_kindly(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{job_id}")
    tab.page.click("summary:has-text('Cancel …')")
    server.fail(job_id)
    tab.page.wait_for_selector("#piece-state.stale")  # Held still: somebody is about to act.
    tab.page.fill("details[open] input[name=reason]", "too late")
    tab.page.click("details[open] button:has-text('Cancel this job')")
    tab.page.wait_for_selector("text=the job has ended: it is FAILED_FINAL")


@pytest.mark.acts(
    "/operations",
    "/operations/{operation_id}/pause",
    "/operations/{operation_id}/resume",
    "/operations/{operation_id}/abandon",
)
def test_cohort_is_redriven_with_a_canary_and_its_progress_is_shown(server: Server, open_tab: OpenTab) -> None:
    code = unique("COHORT")
    failed = [server.submit() for _ in range(3)]
    for number, job_id in enumerate(failed):
        server.fail(job_id, f"page {number} is blank", code)
    tab = open_tab(OPERATOR)
    tab.go("/dead-letters")
    row = tab.page.locator(f"#piece-groups tr:has-text('{code}')")
    assert row.locator("td.num").first.inner_text() == "3"
    row.locator("a:has-text('Redrive')").click()
    assert "Redrive 3 jobs?" in tab.text("h1")
    tab.page.fill("[name=reason]", "the scanner is fixed")
    tab.page.fill("[name=canary]", "1")
    tab.page.click("button:has-text('Redrive 3 jobs')")
    tab.page.wait_for_selector("#piece-progress :text('Canary: 0 of 1')")
    act(tab, "Pause …", "Pause this operation", "to look at the first")
    tab.page.wait_for_selector("#piece-progress .chip:text-is('paused')")
    act(tab, "Resume …", "Resume this operation", "it looks well")
    tab.page.wait_for_selector("#piece-progress .chip:text-is('canary')")
    assert "by key:operator: to look at the first" in tab.text(".trail")
    tab.page.mouse.move(0, 0)  # A piece under the pointer holds still.
    new = tab.page.locator("#piece-progress tr:has-text('started') a").nth(1).inner_text()
    server.call_back("result", server.take(new), status="SUCCEEDED", artifacts={})
    tab.page.wait_for_selector("#piece-progress :text('2 started')")
    act(tab, "Abandon …", "Abandon this operation", "enough")
    tab.page.wait_for_selector("text=Abandoned after")
    tab.go("/operations")
    assert "the scanner is fixed" in tab.text()


def test_tenant_sees_only_its_own_on_every_page(server: Server) -> None:
    tenant = f"other-{uuid.uuid4().hex[:8]}"
    job_id, code = server.submit(tenant_id=tenant), unique("FOREIGN")
    server.fail(job_id, "foreign", code)
    body = {"action": "redrive", "filter": {"tenant_id": tenant}, "reason": "foreign reason"}
    operation = server.client.post("/v1/operations", json=body).json()["operationId"]
    with signed_in(server, ACME) as client:
        for path in (
            "/", "/jobs", "/dead-letters", "/operations", "/tenants", "/protocols", "/protocols/OCR", "/audit",
            f"/jobs?tenant_id={tenant}", f"/tenants?name={tenant}", f"/audit?tenant_id={tenant}",
        ):  # fmt: skip
            text = client.get(f"/console{path}").text
            assert code not in text, path
            assert job_id not in text, path
            assert "foreign reason" not in text, path
            assert tenant not in text.replace(f'value="{tenant}"', "").replace(f"={tenant}", ""), path
        for path, status in {"/lanes": 403, "/workers": 403, "/runbooks/any": 404, "/batches/1": 404}.items():
            assert client.get(f"/console{path}").status_code == status, path
        assert client.get(f"/console/submit?like={job_id}").status_code == 404
        assert "Lanes" not in client.get("/console/").text
        assert client.get("/console/?piece=parts").status_code == 404
        assert client.get(f"/console/jobs/{job_id}").status_code == 404
        assert client.get(f"/console/operations/{operation}").status_code == 404
        assert job_id not in client.get("/console/jobs/export?format=jsonl").text
        csrf = csrf_of(client.get("/console/").text)
        refused = client.post(f"/console/jobs/{job_id}/redrive", data={"csrf": csrf, "reason": "x"})
        assert refused.status_code == 404


def test_roles_and_tokens_are_checked_on_every_act(server: Server) -> None:
    job_id = server.submit()
    paths = [f"/jobs/{job_id}/{verb}" for verb in ("cancel", "force", "pause", "resume", "redrive")]
    paths += ["/submit", "/publish-runbook"]
    paths += [f"/runbooks/any/{verb}" for verb in ("dry-run", "rehearse", "stop", "start", "confirm", "retire")]
    paths += ["/operations", *(f"/operations/{job_id}/{verb}" for verb in ("pause", "resume", "abandon"))]
    with signed_in(server, READER) as client:
        csrf = csrf_of(client.get("/console/").text)
        for path in paths:
            answer = client.post(f"/console{path}", data={"csrf": csrf, "reason": "x", "action": "cancel"})
            assert answer.status_code == 403, path
            assert "needs the role" in answer.text
        assert client.get("/console/operations/new?action=cancel").status_code == 403
    with signed_in(server, OPERATOR) as client:
        for path in paths:
            assert client.post(f"/console{path}", data={"reason": "x"}).status_code == 403, path
    assert httpx.post(f"{server.url}/console{paths[0]}", data={"reason": "x"}).status_code == 401
    assert server.job(job_id)["status"] not in ("CANCELLED", "CANCELLING")


BAD_ADDRESSES = (
    "/jobs?status=NOPE", "/jobs?cursor=x", "/jobs?created_from=yesterday", "/jobs?nope=1", "/jobs?piece=nope",
    f"/jobs?tenant_id={'t' * 5000}", "/jobs/not-a-job", "/jobs/019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a", "/nope",
    "/operations/not-one", "/operations/new?action=explode", "/operations/new?action=cancel&waits_for=ACK",
    "/tenants?window=year", "/tenants?order=%3Cscript%3E", f"/tenants?name={'n' * 200}", "/protocols/%3Cscript%3E",
    "/audit?kind=x", "/audit?cursor=%3Cscript%3E", "/audit?from=yesterday", "/submit?request_type=%3Cscript%3E",
    "/submit?like=x", "/runbooks/%3Cscript%3E", "/runbooks/nope", "/runbooks/nope/rehearsals/x",
    "/publish-runbook?name=%3Cscript%3E", "/lanes?piece=nope",
    "/find?id=%3Cscript%3E", "/jobs/export?format=exe", "/static/%2e%2e/frame.py", "/static/vendor/nope.js",
)  # fmt: skip


def test_bad_addresses_are_answered_with_a_page(server: Server) -> None:
    with signed_in(server, ADMIN) as client:
        for path in BAD_ADDRESSES:
            answer = client.get(f"/console{path}")
            assert answer.status_code in (403, 404, 422), (path, answer.status_code)
            assert answer.headers["content-type"].startswith("text/html"), path
            assert "<script>" not in answer.text, path


def test_pages_can_be_read_without_scripts(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    tab = open_tab(ADMIN, java_script_enabled=False)
    tab.go("/jobs")
    assert job_id in tab.text()
    tab.page.click(f"a:has-text('{job_id}')")
    assert "UTC" in tab.text("#piece-events")


def test_piece_is_rendered_once_for_many_viewers(server: Server) -> None:
    texts = set()
    for _ in range(TRIES_MAX):  # Something may change between two of them, and then the piece does too.
        with (
            signed_in(server, ADMIN) as one,
            signed_in(server, ADMIN) as two,
            signed_in(server, ONLY["admin"]) as three,
        ):
            texts = {client.get("/console/?piece=counts").text for client in (one, two, three)}
        if len(texts) == 1:
            break
    assert len(texts) == 1
