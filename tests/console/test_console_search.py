"""Jobs found by what people know of them, in the filter form of the list."""

from __future__ import annotations

import uuid

import pytest
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, OPERATOR, Server

from lucius.api.operations import OPERATIONS
from lucius.console.job_views import FILTERS

VALUE = "<b>4711</b> ' OR 1=1"


@pytest.mark.parametrize("name", ["correlation_id", "idempotency_key", "payload"])
def test_the_list_finds_a_job_by_its_values(server: Server, open_tab: OpenTab, name: str) -> None:
    given = f"{VALUE} {uuid.uuid4().hex}"
    payload = {"customer": given}
    job_id = server.submit(
        request_type="INVOICE", payload=payload, correlation_id=given, idempotency_key=given, tenant_id="globex"
    )
    server.submit(request_type="INVOICE", payload={"customer": "another"}, tenant_id="globex")
    typed = f"customer={given}" if name == "payload" else given
    tab = open_tab(OPERATOR)
    tab.go("/jobs")
    tab.page.fill(f"[name={name}]", typed)
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_selector(f"#piece-list :text('{job_id}')")
    assert tab.page.locator("#piece-list tbody tr").count() == 1
    assert tab.page.input_value(f"[name={name}]") == typed, "the form keeps what was asked for"
    assert "An operation cannot select jobs by" in tab.text(".tools")
    address = tab.page.url.removeprefix(f"{server.url}/console")
    other = open_tab(ACME)
    other.go(address)
    assert job_id not in other.text(), "another tenant's job is not found"


def test_filters_that_only_addresses_have_are_shown_and_kept(server: Server, open_tab: OpenTab) -> None:
    tenant = f"prefix-{uuid.uuid4().hex[:8]}"
    job_ids = [server.submit(tenant_id=tenant) for _ in range(2)]
    server.client.post(f"/v1/jobs/{job_ids[0]}:cancel", json={})
    tab = open_tab(OPERATOR)
    tab.go(f"/jobs?status=CANCELLED,PAUSED&job_id_prefix={job_ids[0][:13]}")
    assert tab.text("[name=status] option:checked") == "CANCELLED or PAUSED"
    assert f"Job id begins with {job_ids[0][:13]}" in tab.text("form.filters .chip")
    assert tab.page.locator(".tools button").count() == 0, "an operation cannot select jobs so"
    assert "several states" in tab.text(".tools")
    tab.page.fill("[name=tenant_id]", tenant)
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_selector("form.filters .chip")
    assert tab.page.locator("#piece-list tbody tr").count() == 1
    tab.page.wait_for_selector(f"#piece-list :text('{job_ids[0]}')")
    tab.page.click("summary:has-text('Views …')")
    tab.page.fill("[name=name]", tenant)
    tab.page.click("button:has-text('Save this view')")
    tab.page.wait_for_selector("text=The view is saved.")
    tab.page.click(f".views a:has-text('{tenant}')")
    assert tab.violations() == []
    tab.page.click("form.filters .chip a")
    tab.page.wait_for_selector("form.filters:not(:has(.chip))")
    assert tab.page.input_value("[name=status]") == "CANCELLED,PAUSED"
    tab.page.select_option("[name=status]", "CANCELLED")
    tab.page.click("button:has-text('Filter')")
    tab.page.wait_for_selector(".tools button:has-text('Redrive')")


def test_every_filter_of_the_api_can_be_part_of_a_view() -> None:
    (listing,) = [one for one in OPERATIONS if one.name == "listJobs"]
    assert set(FILTERS) == {one.name for one in listing.parameters if one.where == "query"} - {"limit", "cursor"}


def test_a_field_that_is_not_searchable_is_refused_with_those_that_are(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(OPERATOR)
    tab.go("/jobs?payload=note=1")
    assert "payloads cannot be searched by note: searchable are customer" in tab.text()
