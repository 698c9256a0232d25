"""The pages of batches in a real browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.console.batch_scenario import HOSTILE, LONG, Batch, runbook
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import ACME, OPERATOR, READER, Server
from tests.long_form import sized

MEMBERS = ["ann", "bob", HOSTILE, LONG, *(f"user-{number:02}" for number in range(16))]
VISIBLE_SECONDS_MAX = sized(5, 1)
"""The short form shares two cores with other tests; `test_console_frame` tries several times, and asks for one."""
SOURCE_SECONDS_MAX = 20.0
FORMULA = "=cmd|' /C calc'!A0 <script>alert(2)</script>"
GRID = """() => {
  const canvas = document.getElementById("grid-canvas"), paper = canvas.getContext("2d");
  const data = paper.getImageData(0, 0, canvas.width, canvas.height).data, seen = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const colour = `rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`;
    seen.set(colour, (seen.get(colour) || 0) + 1);
  }
  const cells = {};
  document.querySelectorAll("#grid .swatch").forEach((one) => {
    cells[one.dataset.cell] = seen.get(getComputedStyle(one).backgroundColor) || 0;
  });
  return cells;
}"""
"""How many pixels of the canvas have the colour of each cell."""


@pytest.fixture(scope="module")
def batch(server: Server) -> Batch:
    """The first phase: one has failed, the others are at its second step."""
    made = Batch(server, "grid page", MEMBERS, {"prepare": ["check", "copy"], "cut-over": ["switch"]})
    made.act("advance")
    made.answer(made.jobs(len(MEMBERS)), lambda member: FORMULA if member == "bob" else None)
    return made


def open_batch(open_tab: OpenTab, batch: Batch, key: str, **options: Any) -> Tab:
    tab = open_tab(key, **options)
    tab.go(f"/batches/{batch.id}")
    tab.page.wait_for_selector("#grid[data-painted-at]")
    tab.expected += ("willReadFrequently",)  # The tests look at pixels; the page does not.
    return tab


def until_number(tab: Tab, more_than: int) -> None:
    tab.page.wait_for_function(
        "number => Number(document.getElementById('grid').dataset.number) > number", arg=more_than
    )


def number(tab: Tab) -> int:
    return int(tab.page.get_attribute("#grid", "data-number") or 0)


def test_the_page_shows_phases_grid_and_who_is_behind(open_tab: OpenTab, batch: Batch) -> None:
    tab = open_batch(open_tab, batch, READER)
    shown = tab.text()
    assert "19 of 20 members have not ended it" in shown
    assert "20 members × 3 steps" in tab.text("#grid-under")
    assert FORMULA in shown
    assert HOSTILE in shown
    pixels = tab.page.evaluate(GRID)
    assert {cell for cell, count in pixels.items() if count > 50} >= {".", "s", "d", "f", "c"}
    assert tab.page.locator("svg.phases line.now").count() == 1
    assert tab.page.locator("button[type=submit]:visible").all_inner_texts() == ["Sign out"], "a reader has no buttons"


def test_a_change_is_visible_soon(open_tab: OpenTab, server: Server) -> None:
    made = Batch(server, "live", [f"m{number}" for number in range(5)], {"one": ["a", "b"]})
    made.act("advance")
    tab = open_batch(open_tab, made, READER)
    tab.until_live()
    jobs = made.jobs(5)
    tab.page.wait_for_timeout(700)  # What came before has been told.
    before = tab.page.evaluate(GRID)["s"]
    assert before == 0
    begun = time.monotonic()
    made.answer(jobs[:1])
    tab.page.wait_for_function(f"() => ({GRID})().s > 20", polling=20)
    assert time.monotonic() - begun < VISIBLE_SECONDS_MAX
    tab.page.wait_for_selector("text=4 of 5 members have not ended it")
    # Paused, nothing moves; afterwards everything is there.
    tab.page.click("#pause")
    at = number(tab)
    made.answer(jobs[1:2])
    tab.page.wait_for_timeout(900)
    assert number(tab) == at
    tab.page.click("#pause")
    until_number(tab, at)
    # A member that joins appears as a row.
    made.act("add", {"csv": "Upn\njoiner\n"})
    tab.page.wait_for_selector("#grid[data-rows='6']")


def test_a_grid_that_missed_changes_is_fetched_anew(open_tab: OpenTab, server: Server) -> None:
    made = Batch(server, "gap", ["x", "y"], {"one": ["a"]})
    made.act("advance")
    tab = open_batch(open_tab, made, READER)
    tab.until_live()
    jobs = made.jobs(2)
    tab.page.click("#pause")
    made.answer(jobs[:1])
    made.answer(jobs[1:])  # The batch ends: all changes but the last are given up.
    answers: list[Any] = []
    tab.page.on("response", lambda answer: answers.append(answer) if "/grid?" in answer.url else None)
    at = number(tab)
    tab.page.wait_for_timeout(600)
    tab.page.click("#pause")
    until_number(tab, at)
    assert answers[-1].json()["whole"]
    assert tab.page.evaluate(GRID)["s"] > 50


@pytest.mark.acts(
    "/batches/{batch_id}/reschedule",
    "/batches/{batch_id}/pause",
    "/batches/{batch_id}/resume",
    "/batches/{batch_id}/advance",
    "/batches/{batch_id}/retry",
    "/batches/{batch_id}/add",
    "/batches/{batch_id}/remove",
    "/batches/{batch_id}/cancel",
)
def test_acts_are_done_with_a_reason_and_kept_in_the_trail(open_tab: OpenTab, server: Server) -> None:
    made = Batch(server, "acts", ["ann", "bob", "carl"], {"one": ["a"], "two": ["b"]})
    tab = open_batch(open_tab, made, OPERATOR)
    page = tab.page

    def act(summary: str, button: str, fields: dict[str, str], reason: str) -> None:
        page.click(f"summary:text-is('{summary}')")
        form = page.locator(f"form:has(button:text-is('{button}'))")
        for name, value in fields.items():
            form.locator(f"[name={name}]").fill(value)
        form.locator("[name=reason]").fill(reason)
        form.locator("button").click()
        page.wait_for_selector(".banner.good")

    act("Reschedule", "Move the phases", {"start": "2030-03-01T08:00:00Z"}, "the window has moved")
    page.wait_for_selector("text=rescheduled from")
    act("Pause the batch", "Pause the batch", {}, "the gateway is down")
    assert "The batch is paused by key:operator: the gateway is down" in tab.text()
    resume = page.locator("form:has(button:text-is('Resume the batch'))")
    resume.locator("[name=reason]").fill("the gateway is back")
    resume.locator("button").click()
    page.wait_for_selector("summary:text-is('Pause the batch')")
    act("Begin the next phase", "Begin it now", {}, "the window is open")
    assert "The next phase begins." in tab.text()
    made.answer(made.jobs(3), lambda member: "mailbox locked" if member == "bob" else None)
    tab.go(f"/batches/{made.id}")
    act("Retry failed members", "Retry", {}, "unlocked by hand")
    (job,) = made.jobs(1)
    assert job["parameters"]["Upn"] == "bob"
    act("Add members", "Add", {"csv": "Upn\ndora"}, "asked for on the phone")
    act("Remove members", "Remove", {"members": "carl\n"}, "left the company")
    act("Cancel the batch", "Cancel the batch", {}, "the window is closed")
    assert made.shown["verdict"] == "cancelled"
    wanted = {
        "batch-advanced": "the window is open", "member-retried": "unlocked by hand",
        "member-added": "asked for on the phone", "member-removed": "by hand: left the company",
        "batch-cancelled": "the window is closed", "batch-rescheduled": "the window has moved",
        "batch-paused": "the gateway is down", "batch-resumed": "the gateway is back",
    }  # fmt: skip
    for kind, reason in wanted.items():
        (event,) = made.events(kind)
        assert (event["actor"], event["detail"]["reason"]) == ("key:operator", reason), kind
    # A button of a page that is out of date is answered kindly.
    token = page.get_attribute("form[action$='/sign-out'] input[name=csrf]", "value")
    said = {
        "cancel": "has ended", "resume": "is neither paused nor held", "confirm-source": "is not held",
        "confirm-move": "has ended", "keep": "has ended", "advance": "has ended", "retry": "was cancelled",
    }  # fmt: skip
    for verb, words in said.items():
        address = f"{tab.url}/console/batches/{made.id}/{verb}"
        answer = page.request.post(address, form={"csrf": token or "", "reason": "again"})
        assert answer.status == 409, verb
        assert words in answer.text(), verb
    refused = page.request.post(f"{tab.url}/console/batches/{made.id}/cancel", form={"csrf": token or ""})
    assert refused.status == 422
    assert "say why" in refused.text()


def test_a_held_batch_is_resumed_and_a_member_retried_from_its_page(open_tab: OpenTab, server: Server) -> None:
    made = Batch(server, "held", ["ann", "bob", "carl"], {"one": ["a", "b"]}, max_failures=0)
    made.act("advance")
    jobs = made.jobs(3)
    made.answer(jobs, lambda member: FORMULA if member == "ann" else None)
    tab = open_batch(open_tab, made, OPERATOR)
    page = tab.page
    assert "The batch is held since" in tab.text()
    page.fill("#why-resume", "one failure is fine")
    page.click("text=Resume the batch")
    page.wait_for_selector(".banner.good")
    assert made.shown["held_at"] is None
    page.click("#grid-canvas", position={"x": 30, "y": 8})
    page.wait_for_url("**/members/*")
    assert FORMULA in tab.text()
    page.fill("#why-retry", "try it once more")
    page.click("text=Retry the failed step")
    page.wait_for_selector(".banner.good")
    assert "waits" in tab.text() or "worker" in tab.text()
    (event,) = made.events("member-retried")
    assert event["detail"]["reason"] == "try it once more"


MOVES = """\
name: moves
data_source: {type: csv, connection: LUCIUS_SOURCE_MOVES, primary_key: Upn, batch_time_column: Day}
phases:
  - name: tell
    offset: T-300d
    steps: [{name: tell, worker_id: worker-moves, function: Tell, params: {Upn: "{{Upn}}"}}]
  - name: go
    offset: T-0
    steps: [{name: move, worker_id: worker-moves, function: Move, params: {Upn: "{{Upn}}"}}]
"""


@pytest.mark.acts("/batches/{batch_id}/confirm-move", "/batches/{batch_id}/keep")
def test_members_whose_date_moved_are_let_go_or_kept(open_tab: OpenTab, server: Server) -> None:
    """Two from their own pages, the others from that of their batch."""
    members = ("ann", "ben", "cleo", "dan")
    early, late = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (200, 230))
    source = server.folder / "moves.csv"
    source.write_text("Upn,Day\n" + "".join(f"{one},{early}\n" for one in members))
    server.client.post("/v1/runbooks", json={"yaml": MOVES}).raise_for_status()
    tab = open_tab(OPERATOR)
    page = tab.page
    tab.go("/runbooks/moves")
    page.wait_for_selector("#piece-state a:has-text('Batch')", timeout=SOURCE_SECONDS_MAX * 1000)
    page.click("#piece-state a:has-text('Batch')")
    page.mouse.move(0, 0)  # Pieces hold still under the pointer.
    page.wait_for_selector("#piece-state :text('4 members')")
    page.wait_for_selector("#piece-figures :text('4 dispatched')", timeout=SOURCE_SECONDS_MAX * 1000)
    address = page.url.partition("?")[0].removeprefix(f"{tab.url}/console")
    source.write_text("Upn,Day\n" + "".join(f"{one},{late}\n" for one in members))
    page.wait_for_selector("#piece-state a:text-is('4 held')", timeout=SOURCE_SECONDS_MAX * 1000)
    ids = {one["member"]: one["member_id"] for one in shown_members(server, address)}
    for member, field, button, notice in (
        ("ann", "move", "Let it move", "leave this batch"),
        ("ben", "keep", "Keep it in this batch", "stay in this batch"),
    ):
        tab.go(f"{address}/members/{ids[member]}")
        assert "the source has moved it" in tab.text()
        page.fill(f"#why-{field}", f"{member} was asked")
        page.click(f"button:text-is('{button}')")
        page.wait_for_selector(f".banner.good:has-text('{notice}')")
        assert "the source has moved it" not in tab.text()
    tab.go(address)
    page.click("summary:text-is('Members whose date moved')")
    page.fill("#why-move", "asked for on the phone")
    page.click("button:text-is('Let all 2 move to their new date')")
    page.wait_for_selector(".banner.good:has-text('leave this batch')")
    assert [one["member"] for one in shown_members(server, address) if one["status"] == "active"] == ["ben"]
    found = server.client.get(f"/v1{address}/events").json()["items"]
    decided = [one for one in found if one["kind"] in ("member-move-confirmed", "member-move-kept")]
    reasons = {one["detail"]["member"]: (one["actor"], one["detail"]["reason"]) for one in decided}
    assert reasons == {
        "ann": ("key:operator", "ann was asked"), "ben": ("key:operator", "ben was asked"),
        "cleo": ("key:operator", "asked for on the phone"), "dan": ("key:operator", "asked for on the phone"),
    }  # fmt: skip


def shown_members(server: Server, address: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.client.get(f"/v1{address}/members").json()["items"]
    return items


def test_the_table_says_the_same_in_words(open_tab: OpenTab, batch: Batch) -> None:
    tab = open_tab(READER, java_script_enabled=False)
    tab.go(f"/batches/{batch.id}/members")
    assert tab.page.locator("tbody tr").count() == len(MEMBERS)
    assert HOSTILE in tab.text()
    tab.go(f"/batches/{batch.id}/members?status=failed")
    assert tab.page.locator("tbody tr").count() == 1
    tab.page.click("tbody a")
    assert FORMULA in tab.text()
    tab.go("/batches?runbook=grid+page")
    assert tab.page.locator("tbody tr").count() == 1


@pytest.mark.acts("/batches/{batch_id}/approve", "/batches/{batch_id}/refuse")
def test_a_phase_is_approved_and_refused_on_the_page(open_tab: OpenTab, server: Server) -> None:
    text = runbook("approved", {"cut over": ["switch"]}).replace("    steps:", "    approval: {count: 2}\n    steps:")
    server.client.post("/v1/runbooks", json={"yaml": text}).raise_for_status()
    made = Batch.of_published(server, "approved", ["ann"])
    reader = open_batch(open_tab, made, READER)
    assert "Phase cut over, due" in reader.text()
    assert reader.page.locator("button:text-is('Approve phase cut over')").count() == 0
    tab = open_batch(open_tab, made, OPERATOR)

    def decide(button: str, why: str) -> None:
        form = tab.page.locator(f"form:has(button:text-is('{button}'))")
        form.locator("[name=reason]").fill(why)
        form.locator("button").click()
        tab.page.wait_for_selector(".banner.good")

    decide("Approve phase cut over", "checked")
    assert "needs 1 more of 2 approvals" in tab.text()
    assert "(checked)" in tab.text()
    assert tab.violations() == []
    decide("Refuse phase cut over", "not today")
    assert made.shown["error"] == "phase cut over was refused by key:operator: not today"
    assert "neither it nor a later one begins" in tab.text()


def test_only_who_may_sees_and_acts(open_tab: OpenTab, batch: Batch) -> None:
    tab = open_tab(ACME)
    assert "user-01" not in tab.page.request.get(f"{tab.url}/console/batches").text()
    member = shown_members(batch.server, f"/batches/{batch.id}")[0]["member_id"]
    for path in (f"/batches/{batch.id}", f"/batches/{batch.id}/members", f"/batches/{batch.id}/grid",
                 f"/batches/{batch.id}/export", f"/batches/{batch.id}/members/{member}"):  # fmt: skip
        answer = tab.page.request.get(f"{tab.url}/console{path}")
        assert answer.status == 404, path
        assert "user-01" not in answer.text()
    reader = open_tab(READER)
    token = reader.page.get_attribute("form[action$='/sign-out'] input[name=csrf]", "value") or ""
    verbs = ("retry", "remove", "add", "cancel", "pause", "resume", "reschedule", "advance", "confirm-source")
    verbs += ("confirm-move", "keep", "approve", "refuse")
    for verb in verbs:
        address = f"{reader.url}/console/batches/{batch.id}/{verb}"
        assert reader.page.request.post(address, form={"csrf": token, "reason": "x"}).status == 403, verb
    operator = open_tab(OPERATOR)
    address = f"{operator.url}/console/batches/{batch.id}/cancel"
    assert operator.page.request.post(address, form={"csrf": token, "reason": "x"}).status == 403, "another's token"


BAD = {
    "/batches?status=gone": 422, "/batches?cursor=-1": 422, "/batches/0": 404, "/batches/x": 404,
    "/batches/999999999999999999": 404, "/batches/1/members?status=<b>": 422, "/batches/1/members/0": 404,
    "/batches/1/members/999999": 404, "/batches/1/members?cursor=1e3": 422, "/batches/1/grid?since=-1": 422,
    "/batches/1/export?status=x": 422, "/batches/1/grid?since=" + "9" * 40: 422,
}  # fmt: skip


def test_bad_addresses_are_answered(open_tab: OpenTab, batch: Batch) -> None:
    tab = open_tab(READER)
    assert {path: tab.page.request.get(f"{tab.url}/console{path}").status for path in BAD} == BAD
