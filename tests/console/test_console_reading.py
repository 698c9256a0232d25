"""What people read and type: times in their zone, what holds still, and what is known of a thing besides its state."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pytest
from tests.console.batch_scenario import Batch, runbook
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import ADMIN, OPERATOR, READER, Server
from tests.console.prefix_proxy import prefix_proxy
from tests.console.test_console_pages import unique

from lucius.console.site import site_of
from lucius.settings import Settings, SettingsError

TOKYO = {"timezone_id": "Asia/Tokyo"}
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
FOCUSES_MAX = 60
TOP = "element => element.getBoundingClientRect().top"


def test_times_are_typed_and_shown_in_the_readers_zone(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(READER, **TOKYO)
    tab.go("/jobs?created_from=2026-01-31T20:00:00Z")
    assert tab.page.input_value("[name=created_from]") == "2026-02-01 05:00:00"
    assert "From (Asia/Tokyo)" in tab.text("form.filters")
    tab.page.fill("[name=created_to]", "2026-03-01 09:30")
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_url(re.compile("created_to="))
    asked = httpx.URL(tab.page.url).params
    assert asked["created_from"] == "2026-01-31T20:00:00Z"
    assert asked["created_to"] == "2026-03-01T00:30:00.000Z"
    assert tab.page.input_value("[name=created_to]") == "2026-03-01 09:30:00"
    tab.page.fill("[name=created_to]", "yesterday")
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_selector("text=created_to")  # It is sent as it was typed, and refused with its name.


def test_a_time_in_an_hour_that_comes_twice_is_sent_as_it_was_told(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(READER, timezone_id="America/New_York")
    tab.go("/jobs?created_from=2026-11-01T06:30:00Z")
    assert tab.page.input_value("[name=created_from]") == "2026-11-01 01:30:00"  # As half past five in UTC is, too.
    tab.page.fill("[name=created_to]", "2026-11-01 05:30")
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_url(re.compile("created_to="))
    assert httpx.URL(tab.page.url).params["created_from"] == "2026-11-01T06:30:00Z"


def test_no_page_shows_a_time_in_the_form_of_the_api(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    error = {"code": "BUSY", "message": "busy"}
    server.call_back("result", server.take(job_id), status="FAILED", failure_class="RETRYABLE", error=error)
    batch = Batch(server, "zoned", ["somebody"], {"first": ["step"]})
    batch.act("advance")
    batch.jobs(1)
    tab = open_tab(READER, **TOKYO)
    for path in (f"/jobs/{job_id}", f"/batches/{batch.id}", f"/batches/{batch.id}/members", "/runbooks/zoned"):
        tab.go(path)
        assert not INSTANT.search(tab.text()), path
    tab.go(f"/jobs/{job_id}")
    assert "retry at" in tab.text("#piece-events")


def test_what_is_under_the_pointer_stays_where_it_is(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    tab = open_tab(READER)
    tab.go(f"/jobs/{job_id}")
    tab.until_live()
    tab.page.wait_for_selector("#event-3")
    button = tab.page.locator("button:has-text('Copy as curl')")
    button.hover()
    before = button.evaluate(TOP)
    server.call_back("ack", server.take(job_id), status="ACKED")
    tab.page.wait_for_selector("#event-4")
    assert button.evaluate(TOP) == pytest.approx(before, abs=1)


HIDE = """isHidden => {
  Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hidden_tab_rests_and_catches_up(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    hidden, watched = open_tab(READER), open_tab(READER)
    for tab in (hidden, watched):
        tab.go(f"/jobs/{job_id}")
        tab.until_live()
    hidden.page.evaluate(HIDE, True)
    asked: list[str] = []
    hidden.page.on("request", lambda request: asked.append(request.url))
    server.client.post(f"/v1/jobs/{job_id}:pause", json={})
    watched.page.wait_for_selector("#piece-state .headline:has-text('paused')")
    assert [url for url in asked if "piece=" in url] == []
    hidden.page.evaluate(HIDE, False)
    hidden.page.wait_for_selector("#piece-state .headline:has-text('paused')")


def test_banner_of_a_lost_stream_goes_when_it_is_back(server: Server, open_tab: OpenTab) -> None:
    tenant = f"back-{uuid.uuid4().hex[:8]}"
    with prefix_proxy("") as proxy:
        proxy.target = server.url
        tab = open_tab(READER, url=f"http://127.0.0.1:{proxy.server_port}")
        tab.expected += ("net::ERR", "Failed to fetch", "network error")
        tab.page.mouse.move(0, 0)  # A list under the pointer holds still.
        tab.go(f"/jobs?tenant_id={tenant}")
        tab.until_live()
        assert not tab.page.is_visible("#lost")
        proxy.is_cut = True
        job_id = server.submit(tenant_id=tenant)
        tab.page.wait_for_selector("#lost:visible")
        assert job_id not in tab.text("#piece-list")
        proxy.is_cut = False
        tab.page.wait_for_selector("#lost", state="hidden")
        tab.until_live()
        tab.page.wait_for_selector(f"#piece-list :text('{job_id}')")  # What was missed is read.
        tab.page.context.close()


def test_note_of_a_step_is_shown_as_text(server: Server, open_tab: OpenTab) -> None:
    job_id, note = server.submit(), "<img src=x onerror=alert(1)> <b>page</b> {{7*7}} \u202e3 of 9"
    directive = server.take(job_id)
    server.call_back("ack", directive, status="ACKED")
    server.call_back("heartbeat", directive, progress=0.3, note=note)
    tab = open_tab(READER)
    tab.go(f"/jobs/{job_id}")
    shown = tab.text("#piece-state tr.step-row")
    assert "<img src=x onerror=alert(1)> <b>page</b> {{7*7}}" in shown
    assert "30 % done" in shown
    assert tab.page.locator("#piece-state img, #piece-state tr.step-row b").count() == 0


FOCUSED = """() => {
  const one = document.activeElement;
  return one === window.kept ? "kept" : one.id || one.textContent.trim();
}"""


def focus_by_keyboard(tab: Tab, wanted: str) -> list[str]:
    """Press Tab until this element, named by its id, has the focus; what had it before. `kept` is `window.kept`."""
    passed: list[str] = []
    while wanted not in passed and len(passed) < FOCUSES_MAX:
        tab.page.keyboard.press("Tab")
        passed.append(tab.page.evaluate(FOCUSED))
    assert passed[-1] == wanted, passed
    return passed[:-1]


def test_keyboard_alone_pauses_and_keeps_its_place_while_a_piece_changes(server: Server, open_tab: OpenTab) -> None:
    tenant = f"keys-{uuid.uuid4().hex[:8]}"
    tab = open_tab(READER)
    tab.page.mouse.move(0, 0)
    tab.go("/")
    tab.until_live()
    assert focus_by_keyboard(tab, "pause")[0] == "Skip to the content"
    assert tab.page.locator("#pause").evaluate("one => getComputedStyle(one).outlineStyle") != "none"
    for words, pressed in (("Continue", "true"), ("Pause", "false")):
        tab.page.keyboard.press("Enter")
        assert (tab.text("#pause"), tab.page.get_attribute("#pause", "aria-pressed")) == (words, pressed)
    counts = tab.page.locator("#piece-counts tbody a").first
    counts.evaluate("link => { window.kept = link; }")
    before = counts.inner_text()
    focus_by_keyboard(tab, "kept")
    server.submit(tenant_id=tenant)
    tab.page.wait_for_function("before => window.kept.textContent !== before", arg=before)
    assert tab.page.evaluate(FOCUSED) == "kept"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(f"#piece-list :text('{tenant}')")
    assert "created_from=" in tab.page.url


def test_command_is_copied_as_envelope_curl_and_lucius(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit(payload={"language": "it's <b>"})
    tab = open_tab(OPERATOR, permissions=["clipboard-read", "clipboard-write"])
    tab.go(f"/jobs/{job_id}")
    copied = {}
    for name in ("envelope", "curl", "lucius"):
        tab.page.click(f"button:has-text('Copy as {name}')")
        tab.page.wait_for_selector("button:has-text('Copied')")
        copied[name] = tab.page.evaluate("() => navigator.clipboard.readText()")
    envelope = json.loads(copied["envelope"])
    assert envelope["payload"] == {"language": "it's <b>"}
    program, address, *options = shlex.split(copied["curl"])
    assert (program, address, json.loads(options[-1])) == ("curl", f"{server.url}/v1/commands", envelope)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "LUCIUS_API_KEY": OPERATOR}
    done = subprocess.run(["sh", "-c", copied["lucius"]], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = server.client.get("/v1/jobs", params={"tenant_id": "acme", "idempotency_key": f"like-{job_id}"}).json()
    assert [one["input_ref"] for one in found["items"]] == [envelope["input_ref"]]


def test_form_that_somebody_fills_in_is_kept(server: Server, open_tab: OpenTab) -> None:
    batch = Batch(server, "typed", ["somebody"], {"first": ["step"]})
    tab = open_tab(OPERATOR)
    tab.go(f"/batches/{batch.id}")
    tab.until_live()
    tab.page.click("summary:has-text('Pause the batch')")
    tab.page.fill("#why-pause", "the network is being")
    tab.page.evaluate("document.activeElement.blur()")
    tab.page.mouse.move(0, 0)
    batch.act("cancel", {"reason": "x"})
    tab.page.wait_for_selector("#piece-state.stale")
    assert tab.page.input_value("#why-pause") == "the network is being"
    tab.page.click("#piece-state button:has-text('Pause the batch')")
    tab.page.wait_for_selector("text=has ended")  # What became of it meanwhile is said.


def test_cancelled_job_names_the_job_that_redrives_it(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    server.client.post(f"/v1/jobs/{job_id}:cancel", json={})
    new = server.client.post(f"/v1/jobs/{job_id}:redrive", json={"reason": "x"}).json()["jobId"]
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{job_id}")
    tab.page.click(f"a:has-text('{new}')")
    assert job_id in tab.text("#piece-state")


def test_job_links_to_its_trace_and_marks_its_deadline(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(READER)
    tab.go(f"/jobs/{server.submit(traceparent=f'00-{TRACE_ID}-00f067aa0ba902b7-01')}")
    link = tab.page.locator(f"a:has-text('{TRACE_ID}')").first
    assert link.get_attribute("href") == f"https://traces.example/trace/{TRACE_ID}"
    tab.page.wait_for_selector("svg.timeline .m-due")
    now, due, deadline = (_right(tab, kind) for kind in ("m-now", "m-due", "m-deadline"))
    assert now < due < deadline <= _right(tab, "lane0")
    tab.go(f"/jobs/{server.submit()}")
    assert tab.page.locator("a[href*='traces.example']").count() == 0


def _right(tab: Tab, kind: str) -> float:
    box = tab.page.locator(f"svg.timeline .{kind}").first.bounding_box()
    assert box is not None
    return float(box["x"] + box["width"])


@pytest.mark.parametrize("address", ["javascript:alert(1)//{trace_id}", "https://traces.example/", "{trace_id}"])
def test_address_of_traces_that_leads_nowhere_is_named(address: str) -> None:
    with pytest.raises(SettingsError, match="LUCIUS_CONSOLE_TRACE_URL"):
        site_of(Settings(console_trace_url=address))


def test_dead_letters_name_the_service_and_members_their_row(server: Server, open_tab: OpenTab) -> None:
    code = unique("SERVICE")
    server.fail(server.submit(), code=code)
    found = server.client.get("/v1/failures", params={"dead_letters": "true"}).json()["items"]
    assert [one["service"] for one in found if code in one["error_signature"]] == ["ocr"]
    book = {"yaml": runbook("rows", {"first": ["step"]})}
    server.client.post("/v1/runbooks", json=book).raise_for_status()
    batch = {"runbook": "rows", "csv": "Upn,Town\nann,<b>Köln</b>\nben,Ulm\n", "advance": "manual"}
    number = server.client.post("/v1/batches", json=batch).json()["batch_id"]
    address = f"/v1/batches/{number}/members"
    (member,) = server.client.get(address, params={"key": "ann"}).json()["items"]
    assert member["row"] == {"Upn": "ann", "Town": "<b>Köln</b>"}
    tab = open_tab(ADMIN)
    tab.go("/dead-letters")
    assert "ocr" in tab.text(f"tr:has-text('{code}') [data-label=Service]")
    tab.go(f"/batches/{number}/members/{member['member_id']}")
    assert "<b>Köln</b>" in tab.text("#piece-member")
    assert "Ulm" not in tab.text("#piece-member")
    assert all("row" not in one for one in server.client.get(address).json()["items"])
