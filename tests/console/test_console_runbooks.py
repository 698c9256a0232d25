"""Runbooks in a real browser: publishing, comparing, trying out, rehearsing, automation, and a source that is held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.console.batch_scenario import HOSTILE, Batch, runbook
from tests.console.console_browser import OpenTab
from tests.console.console_server import ADMIN, OPERATOR, READER, Server

NAME = "console book"
PHASES = {"prepare": ["check", "copy"], "cut-over": ["switch"]}
GUARDED = """\
name: guarded
data_source: {type: csv, connection: LUCIUS_SOURCE_MEMBERS, primary_key: Upn, batch_time_column: Day}
phases:
  - name: go
    offset: T-0
    steps: [{name: move, worker_id: worker-guarded, function: Move, params: {Upn: "{{Upn}}"}}]
"""
DAY = f"{datetime.now(UTC) + timedelta(days=200):%Y-%m-%d}"
SOURCE_SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def book(server: Server) -> Batch:
    return Batch(server, NAME, ["ann", "bob", HOSTILE], PHASES, description='"Moves <b>mailboxes</b>"')


@pytest.mark.acts("/publish-runbook")
def test_text_is_checked_published_from_a_file_and_compared(
    server: Server, open_tab: OpenTab, book: Batch, tmp_path: Path
) -> None:
    tab = open_tab(ADMIN)
    tab.go("/runbooks")
    tab.page.click("text=Publish a runbook …")
    tab.page.fill("#yaml", f"name: <script>\nphases: {HOSTILE}\n")
    tab.page.click("button:text-is('Publish')")
    assert "Nothing was published." in tab.text("[role=alert]")
    assert "line 1" in tab.text("[role=alert]")
    file = tmp_path / "book.yaml"
    file.write_text(runbook(NAME, {"prepare": ["check"], "cut-over": ["switch"], "tidy": ["clean"]}))
    tab.page.set_input_files("input[type=file]", file)
    tab.page.wait_for_function("document.getElementById('yaml').value.includes('tidy')")
    tab.page.click("button:text-is('Check it only')")
    assert f"{NAME} is valid" in tab.text("[role=status]")
    tab.page.click("button:text-is('Publish')")
    tab.page.wait_for_selector("text=The text is the active version now.")
    tab.page.click("a:has-text('with version 2')")
    shown = tab.text("#compared ~ .wide")
    assert "tidy" in shown
    assert "copy" in shown


@pytest.mark.acts("/runbooks/{name}/dry-run", "/runbooks/{name}/rehearse")
def test_dry_run_and_rehearsal_are_pages_and_the_batch_shows_the_forecast(
    server: Server, open_tab: OpenTab, book: Batch
) -> None:
    tab = open_tab(OPERATOR)
    tab.go(f"/runbooks/{NAME}")
    assert tab.page.locator("text=Publish a new version").count() == 0, "an operator may not publish"
    tab.page.click("summary:text-is('Dry run')")
    tab.page.fill("#dry-csv", f"Upn\nann\n{HOSTILE}\n")
    tab.page.click("button:has-text('Show what would happen')")
    assert "2 members" in tab.text("[role=status]")
    assert HOSTILE in tab.text()
    tab.go(f"/runbooks/{NAME}")
    tab.page.click("summary:text-is('Rehearse')")
    tab.page.fill("#rehearse-count", "20")
    tab.page.click("button:text-is('Rehearse')")
    tab.page.wait_for_selector("h1:has-text('Rehearsal of')", timeout=60_000)
    assert "20 members" in tab.text()
    made = Batch(server, NAME, ["dora"], PHASES)  # The version of the fixture again, under a new number.
    csv = {"runbook": NAME, "csv": "Upn\nemil\n", "advance": "manual"}
    batch_id = server.client.post("/v1/batches", json=csv).json()["batch_id"]
    assert made.id
    tab.go(f"/runbooks/{NAME}")
    tab.page.click("summary:text-is('Rehearse')")
    tab.page.fill("#rehearse-csv", "Upn\nann\nbob\n")
    tab.page.click("button:text-is('Rehearse')")
    tab.page.wait_for_selector("text=2 members, made", timeout=60_000)
    tab.go(f"/batches/{batch_id}")
    assert "Forecast against actual" in tab.text("#piece-forecast")
    assert "cut-over" in tab.text("#piece-forecast")


def test_bad_rehearsals_are_answered_kindly(server: Server, open_tab: OpenTab, book: Batch) -> None:
    tab = open_tab(OPERATOR)
    for field, value, words in (
        ("count", "9999999", "the rehearsal"), ("fail", "many", "is not a share"), ("count", "0", "the rehearsal"),
    ):  # fmt: skip
        tab.go(f"/runbooks/{NAME}")
        tab.page.click("summary:text-is('Rehearse')")
        tab.page.fill(f"#rehearse-{field}", value)
        tab.page.click("button:text-is('Rehearse')")
        assert words in tab.text(".banner"), (field, value)


@pytest.mark.acts("/runbooks/{name}/stop", "/runbooks/{name}/start")
def test_automation_is_stopped_and_started_with_a_reason(server: Server, open_tab: OpenTab, book: Batch) -> None:
    tab = open_tab(OPERATOR)
    for word, notice in (("Stop", "Automation is stopped"), ("Start", "Automation is on again")):
        tab.go(f"/runbooks/{NAME}")
        if word == "Stop":
            tab.page.click("summary:text-is('Stop automation')")
        tab.page.fill(f"#why-{word.lower()}", f"{word} for <b>the weekend</b>")
        tab.page.click(f"button:text-is('{word} automation')")
        tab.page.wait_for_selector(f"text={notice}")
    audit = server.client.get("/v1/admin/audit", params={"target": NAME, "kind": "runbook"}).json()["items"]
    assert [one["reason"] for one in audit[:2]] == ["Start for <b>the weekend</b>", "Stop for <b>the weekend</b>"]


@pytest.mark.acts("/batches/{batch_id}/confirm-source", "/runbooks/{name}/confirm", "/runbooks/{name}/retire")
def test_held_source_is_confirmed_and_its_runbook_retired(server: Server, open_tab: OpenTab) -> None:
    """Two runbooks of one source: one is confirmed on the page of its batch, the other on its own."""
    source = server.folder / "members.csv"
    members = [f"user-{number}" for number in range(8)]
    source.write_text("Upn,Day\n" + "".join(f"{one},{DAY}\n" for one in members))
    tabs = []
    for name in ("guarded", "guarded too"):
        published = {"yaml": GUARDED.replace("name: guarded", f"name: {name}")}
        server.client.post("/v1/runbooks", json=published).raise_for_status()
        tabs.append(open_tab(ADMIN))
        tabs[-1].go(f"/runbooks/{name}")
        tabs[-1].page.wait_for_selector("#piece-state a:has-text('Batch')", timeout=SOURCE_SECONDS_MAX * 1000)
        tabs[-1].page.mouse.move(0, 0)  # Pieces hold still under the pointer.
    source.write_text(f"Upn,Day\nuser-0,{DAY}\n")
    tabs[0].page.click("#piece-state a:has-text('Batch')")
    for tab, target in zip(tabs, ("guarded", "guarded too"), strict=True):
        tab.page.mouse.move(0, 0)
        tab.page.wait_for_selector("#piece-state :text('is held')", timeout=SOURCE_SECONDS_MAX * 1000)
        tab.page.fill("#why-confirm", f"those of {target} were moved by hand")
        tab.page.click("button:text-is('Confirm the source')")
        tab.page.wait_for_selector("text=The source is confirmed")
        assert audited(server, target, "source-confirmed") == [f"those of {target} were moved by hand"]
    tab.page.click("summary:text-is('Retire')")
    tab.page.fill("#why-retire", "the move is over")
    tab.page.click("button:text-is('Retire the runbook')")
    tab.page.wait_for_selector("text=The runbook is retired")
    assert tab.page.locator("h1 .chip").inner_text() == "not active"
    assert audited(server, "guarded too", "runbook-retired") == ["the move is over"]


def audited(server: Server, target: str, action: str) -> list[str]:
    """The reasons that the administrator gave for this."""
    query = {"target": target, "action": action}
    items = server.client.get("/v1/admin/audit", params=query).json()["items"]
    return [one["reason"] for one in items if one["by"] == "key:api-key"]


def test_reader_sees_no_buttons(server: Server, open_tab: OpenTab, book: Batch) -> None:
    tab = open_tab(READER)
    tab.go(f"/runbooks/{NAME}")
    assert tab.page.locator("main form").count() == 0
    tab.go("/publish-runbook")
    assert "needs the role admin" in tab.text()
