"""Jobs found by what people know of them, in the filter form of the list."""

from __future__ import annotations

import uuid

import pytest
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, OPERATOR, Server

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


def test_a_field_that_is_not_searchable_is_refused_with_those_that_are(server: Server, open_tab: OpenTab) -> None:
    tab = open_tab(OPERATOR)
    tab.go("/jobs?payload=note=1")
    assert "payloads cannot be searched by note: searchable are customer" in tab.text()
