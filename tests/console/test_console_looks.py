"""Every page of the console in each look, by the console's own table of pages: its status, what axe finds, and whether
it scrolls sideways."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from urllib.parse import quote

import pytest
from msgspec import Struct
from tests.console import console_addresses as addresses
from tests.console.batch_scenario import HOSTILE as HOSTILE_MEMBER
from tests.console.batch_scenario import LONG, Batch
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import ADMIN, HOSTILE, READER, Server

INSTANCE = "reader-<b>7f9c</b>"
SPARE_ID = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a"
LINK = "/sign-in/a-link-that-nobody-made"


class Scene(Struct, frozen=True):
    values: dict[str, str]
    """Of the parameters of all addresses."""
    working: str
    signature: str
    tenant: str
    ended_batch: int


@pytest.fixture(scope="module")
def scene(server: Server) -> Scene:
    """Something on every page, with words that would do harm if they were not shown as text."""
    tenant = f"looks-{uuid.uuid4().hex[:8]}"
    working = server.submit(
        tenant_id=tenant, request_type="OCR_EMBEDDING_SIS", payload={"sis": {"prompt_set": [HOSTILE[:300]]}}
    )
    server.call_back("ack", server.take(working), status="ACKED", acked_by=INSTANCE)
    failed = server.submit(tenant_id=tenant)
    server.fail(failed, HOSTILE)
    done = server.submit(tenant_id=tenant, request_type="INVOICE", payload={"customer": "c1"})
    directive = server.take(done, "reader", {"Lucius-Instance": INSTANCE, "Lucius-Version": "1.4.2"})
    server.call_back("result", directive, status="SUCCEEDED", artifacts={})
    server.client.post(f"/v1/jobs/{working}:pause", json={"reason": f"why {HOSTILE[:100]}"})
    runbook = f"looks {tenant}"
    phases = {"prepare": ["check", "copy"], "cut-over": ["switch"]}
    ended = Batch(server, runbook, ["ann"], phases)
    ended.act("cancel", {"reason": "not needed"})
    batch = Batch(server, runbook, ["ann", HOSTILE_MEMBER, LONG], phases, description='"Moves <b>mailboxes</b>"')
    batch.act("advance")
    batch.answer(batch.jobs(3), lambda member: HOSTILE if member == "ann" else None)
    signature = server.job(failed)["error_signature"]
    return Scene(addresses.make_values(server, failed, batch, tenant), working, signature, tenant, ended.id)


def test_every_page_is_readable_in_every_look(server: Server, open_tab: OpenTab, scene: Scene) -> None:
    tab, runbook = open_tab(ADMIN), quote(scene.values["name"])
    more = (
        f"/jobs/{scene.working}", f"/jobs?tenant_id={scene.tenant}", "/jobs?status=FAILED_FINAL&created_from=x",
        f"/operations/new?action=redrive&error_signature={quote(scene.signature)}", "/workers?absent=1",
        f"/tenants?name={scene.tenant}", f"/audit?tenant_id={scene.tenant}", f"/submit?like={scene.values['job_id']}",
        "/submit?as=json", f"/runbooks/{runbook}?compare=1", f"/publish-runbook?name={runbook}",
        f"/batches/{scene.values['batch_id']}/members?status=failed", f"/batches/{scene.ended_batch}",
    )  # fmt: skip
    shown = [*addresses.pages(scene.values).values(), *more]
    wrong = {path: faults for path in shown if (faults := faults_of(tab, path, 422 if "from=x" in path else 200))}
    assert not wrong
    tab.go(f"/jobs/{scene.values['job_id']}")
    assert "<script>document.title" in tab.text("#piece-state")


def test_every_page_of_an_error_is_readable_in_every_look(server: Server, open_tab: OpenTab, scene: Scene) -> None:
    tab, reader = open_tab(ADMIN), open_tab(READER)
    wrong: dict[str, list[str]] = {}
    for path, status in (("/nope", 404), (f"/jobs/{SPARE_ID}", 404), ("/sign-out", 405), ("/jobs?status=<b>", 422)):
        wrong[path] = faults_of(tab, path, status)
    wrong["without the role"] = faults_of(reader, "/submit", 403)
    runbook = f"/runbooks/{quote(scene.values['name'])}"
    sent: dict[str, tuple[int, Mapping[str, str]]] = {
        f"{runbook}/dry-run": (200, {"csv": f"Upn\nann\n{HOSTILE_MEMBER}\n{LONG}\n"}),
        "/publish-runbook": (422, {"yaml": f"name: <script>\nphases: {HOSTILE}\n"}),
        "/submit": (422, {"request_type": "OCR", "field:/payload/language": HOSTILE}),
        f"/batches/{scene.ended_batch}/cancel": (409, {"reason": HOSTILE}),
        f"/jobs/{scene.values['job_id']}/cancel": (422, {}),
    }
    for path, (status, fields) in sent.items():
        wrong[f"sent to {path}"] = faults_of(tab, path, status, fields)
    assert not {path: faults for path, faults in wrong.items() if faults}


def test_every_page_without_a_session_is_readable_in_every_look(server: Server, open_tab: OpenTab) -> None:
    """Those of OpenID Connect are in `test_console_openid`."""
    tab = open_tab()
    wrong = {path: faults_of(tab, path, status) for path, status in (("/sign-in", 200), (LINK, 200), ("/nope", 404))}
    tab.go("/sign-in")
    wrong["unknown key"] = faults_of(tab, "/sign-in", 401, {"key": HOSTILE[:200]})
    wrong["used link"] = faults_of(tab, LINK, 401, {})
    wrong["an act"] = faults_of(tab, f"/jobs/{SPARE_ID}/cancel", 401, {"reason": "x"})
    assert not {path: faults for path, faults in wrong.items() if faults}


def faults_of(tab: Tab, path: str, status: int, fields: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with the page at this address, or with the answer to a form that is sent there."""
    answered = tab.go(path) if fields is None else tab.send(path, fields)
    if tab.page.locator("#grid").count():
        tab.page.wait_for_selector("#grid[data-painted-at]")
    faults = [] if answered == status else [f"status {answered} instead of {status}"]
    if "owned" in tab.page.title():
        faults.append("a value was run as a script")
    return faults + tab.faults_by_look()
