"""The impact preview: jobs in flight by version, payloads that would be refused, and nothing of what is in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lucius.usecases import preview_protocol as module

PATH = "/v1/admin/protocols:preview"
SHIPPED = Path(module.__file__).parents[1] / "registries" / "shipped" / "protocols"


def changed(name: str, change: Callable[[dict[str, Any]], object] = lambda _: None, version: int = 2) -> str:
    document = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    document["version"] = version
    change(document)
    return yaml.safe_dump(document)


def properties(document: dict[str, Any], step: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["steps"][step]["payload"]["schema"]["properties"]
    return found


async def preview(api: Any, text: str, **fields: Any) -> dict[str, Any]:
    answer = await api.client.post(PATH, json={"yaml": text, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_payloads_that_a_new_schema_would_refuse_are_named_without_their_values(any_api: Any) -> None:
    secret = "zz-secret"
    good = await any_api.accepted(payload={"language": "en"})
    bad = await any_api.accepted(tenant_id="globex", payload={"language": secret})
    await any_api.accepted(request_type="SIS", payload={"prompt_set": ["a"]})
    text = changed("ocr", lambda one: properties(one)["language"].update(enum=["en", "de"]))
    answer = await any_api.client.post(PATH, json={"yaml": text})
    found = answer.json()
    assert (found["id"], found["version"], found["current_version"]) == ("OCR", 2, 1)
    assert (found["payloads"], found["refused"], found["problems"]) == (2, 1, [])
    (refusal,) = found["refusals"]
    assert (refusal["jobId"], refusal["tenant_id"], refusal["protocol_version"]) == (bad, "globex", 1)
    assert [fault["pointer"] for fault in refusal["faults"]] == ["/payload/language"]
    assert "value is not one of" in refusal["faults"][0]["detail"]
    assert secret not in answer.text
    assert good not in answer.text
    assert found["in_flight"] == [{"version": 1, "jobs": 2}]
    assert any("enum" in line for line in found["diff"])


async def test_ended_jobs_are_not_in_flight_and_their_payloads_count(api: Any) -> None:
    await api.accepted()
    await api.work()
    await api.accepted()
    found = await preview(api, changed("ocr"))
    assert (found["in_flight"], found["payloads"]) == ([{"version": 1, "jobs": 1}], 2)
    assert not found["in_flight_cut_off"]


async def test_payload_of_several_steps_is_put_together_as_it_was_posted(api: Any) -> None:
    payload = {"ocr": {"language": "en"}, "sis": {"prompt_set": ["When?"]}}
    await api.accepted(request_type="OCR_EMBEDDING_SIS", payload=payload)
    assert (await preview(api, changed("ocr_embedding_sis")))["refused"] == 0

    def moved(document: dict[str, Any]) -> None:
        document["steps"][2]["payload"]["pointer"] = "/questions"

    found = await preview(api, changed("ocr_embedding_sis", moved))
    assert {fault["pointer"] for fault in found["refusals"][0]["faults"]} == {
        "/payload/sis",
        "/payload/questions/prompt_set",
    }


async def test_only_the_newest_payloads_are_read_and_only_so_many_jobs_counted(
    api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await api.accepted(payload={"language": f"l{number}"})
    monkeypatch.setattr(module, "OPEN_JOBS_MAX", 3)
    monkeypatch.setattr(module, "REFUSALS_SHOWN_MAX", 1)
    loaded: list[str] = []
    load = api.context.ledger.load

    async def counted(job_ids: Any) -> Any:
        loaded.extend(job_ids)
        return await load(job_ids)

    monkeypatch.setattr(api.context.ledger, "load", counted)
    text = changed("ocr", lambda one: properties(one)["language"].update(const="l0"))
    found = await preview(api, text, payloads=2)
    assert (found["payloads"], found["refused"], len(found["refusals"])) == (2, 2, 1)
    assert (found["in_flight"], found["in_flight_cut_off"]) == ([{"version": 1, "jobs": 3}], True)
    assert len(loaded) == 3 + 2
    assert (await preview(api, text, payloads=0))["payloads"] == 0


async def test_many_faults_are_counted_and_hide_values_too(api: Any) -> None:
    words = [f"hidden-{number}" for number in range(400)]
    await api.accepted(request_type="SIS", payload={"prompt_set": words})
    for items in (
        {"type": "integer"},
        {"anyOf": [{"type": "integer"}, {"maxLength": 1}], "pattern": "x", "maxLength": 2},
    ):
        text = changed("sis", lambda one, items=items: properties(one)["prompt_set"].update(items=items))
        answer = await api.client.post(PATH, json={"yaml": text})
        (refusal,) = answer.json()["refusals"]
        assert len(refusal["faults"]) == module.FAULTS_SHOWN_MAX
        assert refusal["fault_count"] >= 400
        assert "hidden-" not in answer.text


async def test_what_would_not_take_effect_and_what_is_dropped_is_said(api: Any) -> None:
    same = await preview(api, (SHIPPED / "ocr.yaml").read_text())
    assert (same["problems"], same["diff"]) == ([], [])
    unchanged = await preview(api, changed("ocr", lambda one: one.update(description="x"), version=1))
    assert unchanged["problems"] == ["version 1 of OCR is in force and differs: give the change a new version"]
    taken = await preview(api, changed("ocr", lambda one: one.update(request_types=["OCR", "SIS"])))
    assert taken["problems"] == ["the request type SIS is already served by SIS"]

    def dropping(document: dict[str, Any]) -> None:
        document["request_types"] = ["OTHER"]
        document["steps"][0]["service"] = "reader"

    dropped = await preview(api, changed("ocr", dropping))
    assert (dropped["dropped_request_types"], dropped["dropped_services"]) == (["OCR"], ["ocr"])
    new = await preview(api, changed("ocr", lambda one: one.update(id="NEW", request_types=["NEW"]), version=1))
    assert (new["current_version"], new["payloads"], new["refused"]) == (None, 0, 0)


async def test_invalid_text_is_refused_with_its_lines(api: Any) -> None:
    text = (SHIPPED / "ocr.yaml").read_text().replace("service:", "sevice:")
    problem = api.assert_problem(await api.client.post(PATH, json={"yaml": text}), 422, "PROTOCOL_INVALID")
    assert problem["errors"][0]["detail"].startswith("line 8: ")
    problem = api.assert_problem(await api.client.post(PATH, json={"yaml": "id: ["}), 422, "PROTOCOL_INVALID")
    assert problem["detail"].startswith("line ")
    for body in ({"yaml": "id: A", "payloads": 1_001}, {"yaml": "id: A", "payloads": -1}, {}):
        api.assert_problem(await api.client.post(PATH, json=body), 422, "ENVELOPE_INVALID")
    large = {"yaml": "#" * 700_000}
    api.assert_problem(await api.client.post(PATH, json=large), 413, "BODY_TOO_LARGE")
