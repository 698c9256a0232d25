"""Jobs found by correlation id, idempotency key and searchable fields of their payloads, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

INVOICE = """\
id: INVOICE
version: 1
request_types: [INVOICE]
steps:
  - id: read
    type: READ
    service: reader
    payload:
      searchable: [customer, is_urgent, total]
      schema:
        type: object
        additionalProperties: false
        properties:
          customer: {type: string}
          is_urgent: {type: boolean}
          total: {type: number}
          note: {type: string}
"""


@pytest.fixture
async def invoices(open_api: Any, registry_folder: Path) -> Any:
    (registry_folder / "protocols" / "invoice.yaml").write_text(INVOICE)
    return await open_api(registry=str(registry_folder))


async def submitted(api: Any, payload: dict[str, Any], **fields: Any) -> str:
    answer = await api.submit(request_type="INVOICE", payload=payload, **fields)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobId"])


async def found(api: Any, **query: str) -> list[str]:
    answer = await api.client.get("/v1/jobs", params=query)
    assert answer.status_code == 200, answer.text
    return [job["jobId"] for job in answer.json()["items"]]


async def test_jobs_are_found_by_what_they_were_given(invoices: Any) -> None:
    api = invoices
    long, control = "x" * 5_000, "a\x00b"
    first = await submitted(api, {"customer": "4711", "total": 12.5}, correlation_id="order 1", idempotency_key="k 1")
    second = await submitted(api, {"customer": "4711", "is_urgent": True, "note": "4711"}, correlation_id="order 1")
    third = await submitted(api, {"customer": long})
    fourth = await submitted(api, {"customer": control})
    assert await found(api, payload="customer=4711") == [second, first]
    assert await found(api, payload="customer=4711", correlation_id="order 1", idempotency_key="k 1") == [first]
    assert await found(api, correlation_id="order 1") == [second, first]
    assert await found(api, idempotency_key="k 1") == [first]
    assert await found(api, payload="is_urgent=true") == [second]
    assert await found(api, payload="total=12.5") == [first]
    assert await found(api, payload="customer=471") == []
    assert await found(api, payload=f"customer={long[:900]}") == []
    assert await found(api, correlation_id=third) == [third], "without one, the job's id is its correlation id"
    assert await found(api, payload="customer=%") == []
    assert fourth in await found(api, request_type="INVOICE")


async def test_a_tenant_finds_its_own_jobs_only(invoices: Any) -> None:
    api = invoices
    payload = {"customer": "4711"}
    own = await submitted(api, payload, tenant_id="acme", correlation_id="c", idempotency_key="k")
    other = await submitted(api, payload, tenant_id="globex", correlation_id="c", idempotency_key="k")
    assert own != other
    for query in ({"payload": "customer=4711"}, {"correlation_id": "c"}, {"idempotency_key": "k"}):
        assert await found(api, **query) == [other, own]
        assert await found(api, **query, tenant_id="acme") == [own]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ("note=4711", "searchable are customer, is_urgent, total"),
        ("customer", "field=value"),
        ("=4711", "field=value"),
        ('customer"; DROP TABLE jobs --=1', "cannot be searched by"),
    ],
)
async def test_what_cannot_be_searched_is_refused(invoices: Any, payload: str, words: str) -> None:
    answer = await invoices.client.get("/v1/jobs", params={"payload": payload})
    invoices.assert_problem(answer, 422, "ENVELOPE_INVALID", "?payload")
    assert words in answer.text


async def test_protocols_say_what_is_searchable(invoices: Any) -> None:
    protocol = (await invoices.client.get("/v1/protocols/INVOICE")).json()
    assert protocol["steps"][0]["searchable"] == ["customer", "is_urgent", "total"]
