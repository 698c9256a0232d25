"""Signing in, sessions, roles, and what every page has in common."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.console.batch_scenario import runbook
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, ADMIN, READER, Server

from lucius.console import vendor
from lucius.usecases.changes import DEBOUNCE_SECONDS

COOKIE = "lucius_console"


def test_vendored_files_are_the_pinned_ones() -> None:
    assert vendor.missing() == []
    for name, pinned in vendor.PINNED["files"].items():
        assert hashlib.sha256((vendor.VENDOR / name).read_bytes()).hexdigest() == pinned["sha256"]


def test_slash_leads_to_the_console_and_that_to_signing_in(server: Server) -> None:
    with httpx.Client(base_url=server.url, follow_redirects=True) as client:
        answer = client.get("/")
    assert next(str(one.url) for one in answer.history) == f"{server.url}/"
    assert str(answer.url).startswith(f"{server.url}/console/sign-in")
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")


def test_link_signs_in_once_and_only_when_the_button_is_pressed(server: Server, open_tab: OpenTab) -> None:
    link = server.client.post("/v1/console-links").json()["url"]
    for _ in range(2):
        assert httpx.get(link).status_code == 200  # Looking at it does not use it up.
    tab = open_tab()
    tab.page.goto(link)
    tab.page.click("main button")
    tab.page.wait_for_selector("nav")
    (cookie,) = tab.page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
    assert not cookie["secure"]
    assert cookie["expires"] > 0
    again = httpx.post(link)
    assert again.status_code == 401
    assert "was used" in again.text


def test_command_prints_a_link_that_signs_in_as_its_key(server: Server) -> None:
    command = [str(Path(sys.executable).with_name("lucius")), "--url", server.url, "console", "link"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
    ran = subprocess.run(
        command, env=environment | {"LUCIUS_API_KEY": READER}, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    (link,) = ran.stdout.split()
    with httpx.Client(follow_redirects=True) as client:
        assert "This link signs you in once" in client.get(link).text
        assert "key:reader" in client.post(link).text
    assert httpx.post(link).status_code == 401, "it is used"


def test_key_signs_in_and_leads_where_the_visitor_wanted_to_go(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.go("/?x=1")
    tab.page.fill("#key", "lk_not_a_key")
    tab.page.click("main button")
    assert "not known here" in tab.text()
    tab.page.fill("#key", READER)
    tab.page.click("main button")
    tab.page.wait_for_selector("nav")
    assert tab.page.url == f"{server.url}/console/?x=1"
    assert "key:reader" in tab.text(".who")


@pytest.mark.parametrize("path", ["//evil.example/", "https://evil.example/", "/\\evil.example", "/sign-out"])
def test_signing_in_never_leads_elsewhere(server: Server, path: str) -> None:
    answer = httpx.post(f"{server.url}/console/sign-in", data={"key": READER, "next": path})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")


def test_sign_out_ends_the_session_on_the_server(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(READER)
    (cookie,) = tab.page.context.cookies()
    tab.page.click("text=Sign out")
    tab.page.wait_for_selector("#key")
    answer = httpx.get(f"{server.url}/console/", cookies={COOKIE: cookie["value"]})
    assert answer.headers["location"].startswith("/console/sign-in")


def test_forms_without_the_token_of_the_session_are_refused(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        client.post("/console/sign-in", data={"key": ADMIN})
        for sent in ({"x": "1"}, {"csrf": "0" * 64}):
            answer = client.post("/console/sign-out", data=sent)
            assert answer.status_code == 403
            assert "another session" in answer.text
        crossing = client.post("/console/sign-in", data={"key": ADMIN}, headers={"Sec-Fetch-Site": "cross-site"})
        assert crossing.status_code == 403
        assert client.get("/console/").status_code == 200


SEEN_AT = """piece => new Promise((done) => {
  const watched = document.querySelector(piece);
  const text = () => {
    const copy = watched.cloneNode(true);
    copy.querySelectorAll("time").forEach((time) => time.remove());  // Countdowns change by themselves.
    return copy.textContent;
  };
  const before = text();
  const observer = new MutationObserver(() => {
    if (text() !== before) { observer.disconnect(); done(Date.now()); }
  });
  observer.observe(watched, {childList: true, subtree: true, characterData: true});
  setTimeout(() => { observer.disconnect(); done(Infinity); }, 3000);
})"""
"""When the page shows something else in this piece."""
TRIES = 6
"""Other programs may hold the machine for a second. One change that is seen in time shows that the product does it."""


NOTHING_BY_ITSELF = """(() => {
  const every = window.setInterval;
  window.setInterval = (run, milliseconds) => milliseconds < 2000 ? every(run, milliseconds) : 0;
})()"""
"""Pieces are not read every few seconds: what a page shows, the stream has told it to read."""
Change = Callable[[int], object]
"""Makes the change with this number."""


def post(server: Server, path: str, body: dict[str, Any], **headers: str) -> Any:
    answer = server.client.post(path, json=body, headers=headers)
    assert answer.status_code < 300, answer.text
    return answer.json()


def submitting(server: Server) -> tuple[str, Change]:
    return "", lambda at: server.submit()


def pausing_a_job(server: Server) -> tuple[str, Change]:
    job_id = server.submit()
    return job_id, lambda at: post(server, f"/v1/jobs/{job_id}:{('pause', 'resume')[at % 2]}", {})


def redriving_a_job(server: Server) -> tuple[str, Change]:
    """Its page names the job that redrives it."""
    job_id = server.submit()
    post(server, f"/v1/jobs/{job_id}:cancel", {})

    def redrive(at: int) -> None:
        newer = post(server, f"/v1/jobs/{job_id}:redrive", {})["jobId"]
        if at < TRIES - 1:
            post(server, f"/v1/jobs/{newer}:cancel", {})

    return job_id, redrive


def dismissing_a_dead_letter(server: Server) -> tuple[str, Change]:
    job_ids, code = [server.submit() for _ in range(TRIES + 1)], f"LIVE_{uuid.uuid4().hex[:8].upper()}"
    for job_id in job_ids:
        server.fail(job_id, code=code)
    return "", lambda at: post(server, f"/v1/admin/dead-letters/{job_ids[at]}:dismiss", {"reason": "by hand"})


def switching_automation(server: Server) -> tuple[str, Change]:
    name = f"live-{uuid.uuid4().hex[:8]}"
    post(server, "/v1/runbooks", {"yaml": runbook(name, {"one": ["a"]})})
    return name, lambda at: post(server, f"/v1/runbooks/{name}:{('stop', 'start')[at % 2]}", {"reason": "by hand"})


def publishing(server: Server) -> tuple[str, Change]:
    name = f"live-{uuid.uuid4().hex[:8]}"
    return "", lambda at: post(server, "/v1/runbooks", {"yaml": runbook(f"{name}-{at}", {"one": ["a"]})})


def creating_a_batch(server: Server) -> tuple[str, Change]:
    name, _ = switching_automation(server)
    return "", lambda at: post(server, "/v1/batches", {"runbook": name, "csv": "Upn\nann\n", "advance": "manual"})


def asking_for_work(server: Server) -> tuple[str, Change]:
    """The first pull of an instance of a service that has nothing to do."""
    body = {"service": "embedding", "max": 1, "wait_seconds": 0}
    return "", lambda at: post(server, "/v1/directives:pull", body, **{"Lucius-Instance": f"live-{uuid.uuid4()}"})


def steering_an_operation(server: Server) -> tuple[str, Change]:
    """Of the tenant that the visitor is limited to, and slow."""
    type_, tenant = "INVOICE", "acme"
    for _ in range(TRIES):
        server.submit(tenant_id=tenant, request_type=type_, payload={"customer": "live"})
    wish = {
        "action": "pause",
        "filter": {"tenant_id": tenant, "request_type": type_},
        "reason": "x",
        "rate_per_second": 1,
    }
    operation_id = post(server, "/v1/operations", wish)["operationId"]
    return operation_id, lambda at: post(server, f"/v1/operations/{operation_id}:{('pause', 'resume')[at % 2]}", {})


@pytest.mark.parametrize(
    ("path", "piece", "change", "key"),
    [
        ("/", "counts", submitting, ADMIN), ("/tenants", "tenants", submitting, ADMIN),
        ("/jobs", "list", submitting, ADMIN), ("/jobs/{}", "state", pausing_a_job, ADMIN),
        ("/jobs/{}", "state", redriving_a_job, ADMIN), ("/dead-letters", "groups", dismissing_a_dead_letter, ADMIN),
        ("/runbooks/{}", "state", switching_automation, ADMIN), ("/runbooks", "list", publishing, ADMIN),
        ("/audit", "list", switching_automation, ADMIN), ("/batches", "list", creating_a_batch, ADMIN),
        ("/workers", "workers", asking_for_work, ADMIN), ("/lanes", "lanes", asking_for_work, ADMIN),
        ("/operations/{}", "progress", steering_an_operation, ACME),
        ("/operations", "list", steering_an_operation, ACME),
    ],
)  # fmt: skip
def test_page_is_live_and_shows_a_change_within_a_second(
    server: Server, open_tab: OpenTab, path: str, piece: str, change: Callable[[Server], tuple[str, Change]], key: str
) -> None:
    """Whatever makes the change does it through the API."""
    tab, (watched, make) = open_tab(key), change(server)
    tab.page.add_init_script(NOTHING_BY_ITSELF)
    tab.page.mouse.move(0, 0)
    tab.go(path.format(watched))
    tab.until_live()
    delays: list[float] = []
    for at in range(TRIES):
        tab.page.evaluate(f"() => {{ window.seen = ({SEEN_AT})('#piece-{piece}'); }}")
        changed_at = time.time()
        make(at)
        delays.append(tab.page.evaluate("() => window.seen") / 1000 - changed_at)
        if 0.0 <= delays[-1] < 1.0:
            break
    assert any(0.0 <= delay < 1.0 for delay in delays), delays


def test_pieces_that_change_together_are_read_with_one_request(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(ADMIN)
    tab.page.mouse.move(0, 0)  # What is under the pointer holds still.
    tab.until_live()
    read: list[str] = []
    tab.page.on("request", lambda request: read.append(request.url) if "piece=now" in request.url else None)
    server.submit(tenant_id="together")
    tab.page.wait_for_selector("#piece-inflight :text('together')")
    assert read
    assert {urlsplit(url).query for url in read} == {"piece=now&piece=inflight&piece=counts&piece=failures"}


STREAM_LATER = """(() => {
  const now = window.fetch;
  const told = new Promise((done) => { window.openStream = done; });
  window.fetch = async (...wanted) => {
    if (String(wanted[0]).includes("/stream?")) await told;
    return now(...wanted);
  };
})()"""


def test_change_between_page_and_stream_is_shown(server: Server, open_tab: OpenTab) -> None:
    tab, tenant = open_tab(READER), f"tenant-{uuid.uuid4().hex[:8]}"
    tab.page.add_init_script(STREAM_LATER)
    tab.page.mouse.move(0, 0)  # A list under the pointer holds still.
    tab.go(f"/jobs?tenant_id={tenant}")
    server.submit(tenant_id=tenant)
    tab.page.evaluate("() => window.openStream()")
    tab.page.wait_for_selector(f"#piece-list td:has-text('{tenant}')")


def test_stream_tells_a_visitor_nothing_of_other_tenants(server: Server) -> None:
    own, foreign = server.submit(tenant_id="acme"), server.submit(tenant_id="globex")
    with httpx.Client(base_url=server.url, timeout=10) as client:
        client.post("/console/sign-in", data={"key": ACME})
        with client.stream("GET", f"/console/stream?names=jobs,job:{own},job:{foreign}") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            server.client.post(f"/v1/jobs/{foreign}:pause", json={})
            time.sleep(3 * DEBOUNCE_SECONDS)  # What is told of it would come by itself.
            server.client.post(f"/v1/jobs/{own}:pause", json={})
            told = next(line for line in lines if line.startswith("data:"))
    assert told == f"data: job:{own} jobs"


def test_stream_refuses_names_that_are_none(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        client.post("/console/sign-in", data={"key": ACME})
        for names in ("", "a b", "x" * 300, ",".join(f"job:{n}" for n in range(50))):
            assert client.get("/console/stream", params={"names": names}).status_code == 422
