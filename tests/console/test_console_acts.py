"""Every act of the console is done in a browser by some test: see the mark `acts`. Here are those on many jobs at once,
and the last resort for one."""

from __future__ import annotations

import importlib
import inspect
import uuid
from pathlib import Path

import pytest
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import OPERATOR, Server
from tests.console.test_console_pages import act

from lucius.console.routes import ACTS


def test_every_act_is_done_in_a_browser() -> None:
    """What a test is marked with, it has done when it ends: `open_tab` checks that."""
    marked: set[str] = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for one in vars(importlib.import_module(f"tests.console.{file.stem}")).values():
            paths = {path for mark in getattr(one, "pytestmark", ()) if mark.name == "acts" for path in mark.args}
            assert not paths or "open_tab" in inspect.signature(one).parameters, one
            marked |= paths
    assert marked == {declared.path for declared in ACTS}


def begin(tab: Tab, tenant: str, action: str, reason: str) -> None:
    """An operation on all jobs of the tenant, from the list of jobs, until it has ended."""
    tab.go(f"/jobs?tenant_id={tenant}")
    tab.page.click(f".tools button:has-text('{action} …')")
    assert f"{action} 3 jobs?" in tab.text("h1")
    assert tenant in tab.text("dl")
    tab.page.fill("[name=reason]", reason)
    tab.page.click(f"button:text-is('{action} 3 jobs')")
    tab.page.wait_for_selector("#piece-progress")
    tab.page.mouse.move(0, 0)  # A piece under the pointer holds still.
    tab.page.wait_for_selector("#piece-progress p:has-text('3 succeeded, 0 failed')")


@pytest.mark.acts("/operations")
def test_all_jobs_that_match_are_paused_resumed_and_cancelled(server: Server, open_tab: OpenTab) -> None:
    tenant = f"bulk-{uuid.uuid4().hex[:8]}"
    jobs = [server.submit(tenant_id=tenant) for _ in range(3)]
    other = server.submit()
    tab = open_tab(OPERATOR)
    for action, event, status in (
        ("Pause", "PAUSED", "PAUSED"), ("Resume", "RESUMED", "IN_PROGRESS"), ("Cancel", "CANCEL_ASKED", "CANCELLED"),
    ):  # fmt: skip
        reason = f"{action} because of <b>the outage</b>"
        begin(tab, tenant, action, reason)
        assert tab.page.locator("#piece-progress tbody tr").count() == 3
        for job_id in jobs:
            assert server.job(job_id)["status"] == status
            events = server.client.get(f"/v1/jobs/{job_id}/events").json()["events"]
            assert [(one["by"], one["reason"]) for one in events if one["type"] == event] == [("key:operator", reason)]
    assert server.job(other)["status"] not in ("PAUSED", "CANCELLED")


@pytest.mark.acts("/jobs/{job_id}/cancel", "/jobs/{job_id}/force")
def test_cancel_that_a_service_holds_up_is_forced(server: Server, open_tab: OpenTab) -> None:
    job_id = server.submit()
    server.call_back("ack", server.take(job_id), status="ACKED")
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs/{job_id}")
    act(tab, "Cancel …", "Cancel this job", "not needed")
    tab.page.wait_for_selector(".chip:text-is('cancelling')")
    assert server.job(job_id)["status"] == "CANCELLING"
    act(tab, "Force the cancel …", "End it now", "the scanner hangs")
    tab.page.wait_for_selector(".headline .chip:text-is('cancelled')")
    events = server.client.get(f"/v1/jobs/{job_id}/events").json()["events"]
    forced = [(one["by"], one["reason"]) for one in events if one["type"] == "CANCEL_FORCED"]
    assert forced == [("key:operator", "the scanner hangs")]
