"""Saved views and columns of the list of jobs."""

from __future__ import annotations

import html
import uuid
from urllib.parse import urlencode

import pytest
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, OPERATOR, READER, Server
from tests.console.test_console_pages import csrf_of, signed_in

from lucius.console.job_views import VIEWS_MAX

HOSTILE_NAME = "<b>'mine'</b> & =1+1"


@pytest.mark.acts("/jobs/views", "/jobs/views/remove")
def test_view_is_saved_opened_and_removed_by_its_owner_alone(server: Server, open_tab: OpenTab) -> None:
    tenant = f"views-{uuid.uuid4().hex[:8]}"
    job_id = server.submit(tenant_id=tenant)
    tab = open_tab(READER)
    tab.go(f"/jobs?tenant_id={tenant}&status=")
    tab.page.click("summary:has-text('Views …')")
    tab.page.fill("[name=name]", HOSTILE_NAME)
    tab.page.click("button:has-text('Save this view')")
    tab.page.wait_for_selector("text=The view is saved.")
    tab.go("/jobs")
    tab.page.click(f'.views a:has-text("{HOSTILE_NAME}")')
    tab.page.wait_for_selector(f"text={job_id}")
    assert tab.page.locator("tbody tr").count() == 1
    assert tab.violations() == []
    with signed_in(server, OPERATOR) as other:
        assert html.escape(HOSTILE_NAME, quote=False).partition(" ")[0] not in other.get("/console/jobs").text
        csrf = csrf_of(other.get("/console/jobs").text)
        answer = other.post("/console/jobs/views/remove", data={"csrf": csrf, "name": HOSTILE_NAME})
        assert answer.status_code == 303
    tab.go("/jobs")
    tab.page.click("summary:has-text('Views …')")
    tab.page.click("button:has-text('Remove this view')")
    tab.page.wait_for_selector("text=The view is removed.")
    assert HOSTILE_NAME not in tab.text()


@pytest.mark.acts("/jobs/columns")
def test_columns_are_kept_on_the_browser(server: Server, open_tab: OpenTab) -> None:
    tenant = f"columns-{uuid.uuid4().hex[:8]}"
    server.submit(tenant_id=tenant, correlation_id=f"order-{tenant}")
    tab = open_tab(READER)
    tab.go(f"/jobs?tenant_id={tenant}")
    assert "order-" not in tab.text("#piece-list")
    tab.page.click("summary:has-text('Columns …')")
    tab.page.check("[name=column_correlation]")
    tab.page.uncheck("[name=column_type]")
    tab.page.click("button:has-text('Show these columns')")
    tab.page.wait_for_selector(f"#piece-list :text('order-{tenant}')")
    assert f"tenant_id={tenant}" in tab.page.url
    tab.until_live()
    second = server.submit(tenant_id=tenant, correlation_id=f"order-{tenant}")
    tab.page.wait_for_selector(f"tr:has-text('{second}') :text('order-{tenant}')", timeout=3_000)
    tab.go("/jobs")
    heads = tab.page.locator("th").all_inner_texts()
    assert "Correlation id" in heads
    assert "Type" not in heads
    other = open_tab(READER)
    other.go(f"/jobs?tenant_id={tenant}")
    assert "Correlation id" not in other.page.locator("th").all_inner_texts()


@pytest.mark.parametrize("shape", ["name", "no name", "odd name", "filter", "form", "fields", "long"])
def test_views_and_columns_with_bad_input_are_refused(server: Server, shape: str) -> None:
    sent = {
        "name": {"name": "x" * 61},
        "no name": {"name": " "},
        "odd name": {"name": "a\u202eb"},
        "filter": {"name": "x", "query": "next=//evil.example"},
        "form": {"name": "x", "query": "&&&"},
        "fields": {"name": "x", "query": "&".join(f"status={n}" for n in range(100))},
        "long": {"name": "x", "query": "tenant_id=" + "x" * 8_001},
    }[shape]
    with signed_in(server, READER) as client:
        csrf = csrf_of(client.get("/console/jobs").text)
        paths = ("/jobs/views", "/jobs/columns") if "query" in sent else ("/jobs/views",)
        for path in paths:
            assert client.post(f"/console{path}", data={"csrf": csrf, **sent}).status_code == 422
        client.cookies.set("lucius_console_columns", "nope.<b>.status", path="/console")
        text = client.get("/console/jobs").text
        assert "<b>" not in text


def test_views_have_a_limit_and_saving_again_replaces(server: Server) -> None:
    with signed_in(server, ACME) as client:
        csrf = csrf_of(client.get("/console/jobs").text)

        def save(name: str, **filters: str) -> int:
            data = {"csrf": csrf, "name": name, "query": urlencode(filters)}
            return client.post("/console/jobs/views", data=data).status_code

        assert {save(f"view {number}") for number in range(VIEWS_MAX)} == {303}
        assert save("one more") == 409
        assert save("view 0", status="FAILED_FINAL") == 303
        assert "/console/jobs?status=FAILED_FINAL" in client.get("/console/jobs").text
        for number in range(VIEWS_MAX):
            client.post("/console/jobs/views/remove", data={"csrf": csrf, "name": f"view {number}"})
