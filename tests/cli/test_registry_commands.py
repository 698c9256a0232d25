"""`lucius registry` and `lucius protocol` on a real store and on folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.appconfig_server import AppConfigThread, running

from lucius.cli.main import cli
from lucius.registries.appconfig.keys import SENTINEL
from lucius.registries.appconfig.sentinel import SentinelText
from lucius.testing.registry_suite import OTHER, PROTOCOL

PREVIEW = {
    "id": "FAX",
    "version": 1,
    "current_version": None,
    "problems": [],
    "diff": ["+id: FAX"],
    "in_flight": [{"version": 3, "jobs": 12}],
    "in_flight_cut_off": True,
    "payloads": 200,
    "refused": 1,
    "refusals": [
        {
            "jobId": "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a",
            "tenant_id": "acme",
            "faults": [{"code": "PAYLOAD_INVALID", "pointer": "/payload/n", "detail": "value is not an integer"}],
            "fault_count": 1,
        }
    ],
    "dropped_request_types": ["TELEX"],
    "dropped_services": ["telegraph"],
}
CALL = "POST /v1/admin/protocols:preview"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    for name, text in (("protocols/scan.yaml", PROTOCOL), ("tenants/acme.yaml", "id: acme\n")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def module_store() -> Iterator[AppConfigThread]:
    with running() as store:
        yield store


@pytest.fixture
def store(module_store: AppConfigThread, monkeypatch: pytest.MonkeyPatch) -> AppConfigThread:
    module_store.run(module_store.server.clear)
    for name, value in module_store.settings.items():
        monkeypatch.setenv(name, value)
    return module_store


def lucius(*arguments: str | Path, code: int = 0, **options: Any) -> Result:
    result = CliRunner().invoke(cli, [str(one) for one in arguments], **options)
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


def values(store: AppConfigThread) -> dict[str, str]:
    return store.run(lambda: {one.key: one.value for one in store.server.key_values})


def test_push_diff_history_and_pull(store: AppConfigThread, folder: Path, tmp_path: Path) -> None:
    shown = lucius("registry", "diff", folder, code=1)
    assert "lucius:protocols:SCAN:1: added\n--- lucius:protocols:SCAN:1\n+++ protocols/scan.yaml" in shown.stdout
    assert "2 keys would change." in shown.stderr
    assert values(store) == {}
    pushed = lucius("registry", "push", folder, "--yes", "--no-impact", "--by", "ann")
    assert "Pushed by ann: 2 added: protocols:SCAN:1, tenants:acme" in pushed.stdout
    assert values(store)["lucius:tenants:acme"] == "id: acme\n"
    assert "Nothing to push" in lucius("registry", "push", folder).stderr
    lucius("registry", "diff", folder)

    (folder / "tenants/acme.yaml").write_text("id: acme\nmax_inflight: 3\n")
    answer = json.loads(lucius("registry", "diff", folder, "-o", "json", code=1).stdout)
    (difference,) = answer["differences"]
    assert (difference["key"], difference["change"], difference["file"]) == (
        "lucius:tenants:acme",
        "changed",
        "tenants/acme.yaml",
    )
    assert "+max_inflight: 3" in difference["diff"]
    answer = json.loads(lucius("registry", "push", folder, "--yes", "-o", "json").stdout)
    assert answer["pushed"]["push_id"]
    assert answer["impact"] == [], "no protocol has changed, so no server is asked"

    items = json.loads(lucius("registry", "history", "-o", "json").stdout)["items"]
    assert [one["summary"] for one in items] == [
        "1 changed: tenants:acme",
        "2 added: protocols:SCAN:1, tenants:acme",
    ]
    assert items[1]["by"] == "ann"
    assert "1 changed: tenants:acme" in lucius("registry", "history").stdout

    pulled = json.loads(lucius("registry", "pull", tmp_path / "copy", "-o", "json").stdout)
    assert pulled["files"] == [
        {"file": "protocols/SCAN-1.yaml", "key": "lucius:protocols:SCAN:1", "change": "added"},
        {"file": "tenants/acme.yaml", "key": "lucius:tenants:acme", "change": "added"},
    ]
    assert "The folder has what the store holds." in lucius("registry", "pull", folder).stderr


def test_pull_leaves_changed_files_alone_unless_it_is_forced(store: AppConfigThread, folder: Path) -> None:
    lucius("registry", "push", folder, "--yes", "--no-impact")
    (folder / "tenants/acme.yaml").write_text("id: acme\nmode: BURST\n")
    refused = lucius("registry", "pull", folder, code=3)
    assert "tenants/acme.yaml: it was changed here" in refused.stderr
    assert (folder / "tenants/acme.yaml").read_text() == "id: acme\nmode: BURST\n"
    lucius("registry", "pull", folder, "--force")
    assert (folder / "tenants/acme.yaml").read_text() == "id: acme\n"


def test_push_validates_first_and_asks(store: AppConfigThread, folder: Path) -> None:
    asked = lucius("registry", "push", folder, "--no-impact", code=2)
    assert "there is no terminal to ask on: pass --yes" in asked.stderr
    (folder / "tenants/acme.yaml").write_text("id: acme\nmax_inflight: many\n")
    refused = lucius("registry", "push", folder, "--yes", "--no-impact", code=3)
    assert "tenants/acme.yaml:2: " in refused.stderr
    assert values(store) == {}


def test_question_is_asked_on_a_terminal(store: AppConfigThread, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.cli.output.confirming.sys", type("Terminal", (), {"stdin": _Terminal()}))
    declined = lucius("registry", "push", folder, "--no-impact", input="n\n", code=1)
    assert "Push 2 added: protocols:SCAN:1, tenants:acme? [y/N]" in declined.output
    assert "Nothing was changed." in declined.output
    assert values(store) == {}
    lucius("registry", "push", folder, "--no-impact", input="y\n")
    assert SENTINEL in values(store)


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_changed_protocol_under_an_unchanged_version_is_refused(store: AppConfigThread, folder: Path) -> None:
    lucius("registry", "push", folder, "--yes", "--no-impact")
    (folder / "protocols/scan.yaml").write_text(PROTOCOL.replace("scanner", "copier"))
    for command in (("registry", "push", folder, "--yes"), ("registry", "diff", folder)):
        assert "protocols/scan.yaml:2: version 1 of SCAN has changed" in lucius(*command, code=3).stderr
    (folder / "protocols/scan.yaml").write_text("# A comment is no change.\n" + PROTOCOL)
    lucius("registry", "push", folder, "--yes", "--no-impact")


def test_push_under_way_is_not_disturbed_unless_it_is_taken_over(store: AppConfigThread, folder: Path) -> None:
    from datetime import UTC, datetime

    mark = SentinelText(pushing_since=datetime.now(UTC).isoformat(), pushed_by="bob", push_id="1")
    store.put(SENTINEL, mark.encoded())
    refused = lucius("registry", "push", folder, "--yes", "--no-impact", code=3)
    assert "a push by bob has been under way since" in refused.stderr
    assert "a push is under way" in lucius("registry", "pull", folder, code=3).stderr
    lucius("registry", "push", folder, "--yes", "--no-impact", "--take-over")
    assert json.loads(values(store)[SENTINEL])["digest"]


def test_impact_is_shown_before_a_push(store: AppConfigThread, folder: Path, scripted: Any) -> None:
    lucius("registry", "push", folder, "--yes", "--no-impact")
    (folder / "protocols/fax.yaml").write_text(OTHER)
    scripted.on(CALL, PREVIEW)
    shown = scripted.lucius("registry", "push", str(folder), "--yes", "--payloads", "50")
    assert shown.exit_code == 0, shown.output
    assert [(call, body) for call, body, _ in scripted.calls] == [(CALL, {"yaml": OTHER, "payloads": 50})]
    for line in (
        "In flight: 12 jobs of version 3; only the newest were counted. They keep their version.",
        "No longer served: TELEX.",
        "No longer used: service telegraph.",
        "Of the last 200 payloads, 1 would be refused:",
        "job 019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a of acme",
        "/payload/n: value is not an integer",
    ):
        assert line in shown.stdout


def test_push_without_a_server_to_ask_changes_nothing(store: AppConfigThread, folder: Path) -> None:
    refused = lucius("--url", "http://127.0.0.1:9", "registry", "push", folder, "--yes", code=4)
    assert "The impact is unknown, and nothing was changed" in refused.stderr
    assert values(store) == {}


def test_store_that_does_not_answer_and_wrong_settings_are_named(
    store: AppConfigThread, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run(lambda: setattr(store.server.faults, "broken", True))
    assert "status 500" in lucius("registry", "history", code=4).stderr
    monkeypatch.setenv("LUCIUS_REGISTRY", str(folder))
    assert "this needs a store" in lucius("registry", "diff", folder, code=2).stderr


def test_push_that_ends_halfway_is_continued(store: AppConfigThread, folder: Path) -> None:
    store.run(lambda: setattr(store.server.faults, "writes_left", 2))
    halted = lucius("registry", "push", folder, "--yes", "--no-impact", code=4)
    assert "the push ended halfway" in halted.stderr
    store.run(store.server.faults.clear)
    lucius("registry", "push", folder, "--yes", "--no-impact", "--take-over")
    lucius("registry", "diff", folder)


# --- lucius protocol -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "store"])
def registry(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either kind, holding SCAN version 1."""
    if request.param == "folder":
        monkeypatch.setenv("LUCIUS_REGISTRY", str(folder))
    else:
        request.getfixturevalue("store")
        lucius("registry", "push", folder, "--yes", "--no-impact")
    return str(request.param)


def test_protocol_is_validated_and_published_into_either_registry(registry: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "fax.yaml"
    file.write_text(OTHER)
    assert "is valid: FAX version 1 (scan)" in lucius("protocol", "validate", file).stdout
    answer = json.loads(lucius("protocol", "publish", file, "--yes", "--no-impact", "-o", "json").stdout)
    assert (answer["published"], answer["id"], answer["version"]) == (True, "FAX", 1)
    again = lucius("protocol", "publish", file, "--yes", "--no-impact")
    assert "Nothing to do: the registry has FAX version 1" in again.stderr
    if registry == "folder":
        assert (folder / "protocols/FAX-1.yaml").read_text() == OTHER
    else:
        lucius("registry", "pull", tmp_path / "copy")
        assert (tmp_path / "copy/protocols/FAX-1.yaml").read_text() == OTHER
        items = json.loads(lucius("registry", "history", "-o", "json").stdout)["items"]
        assert items[0]["summary"] == "1 added: protocols:FAX:1"


def test_changed_version_and_taken_request_type_are_faults_on_their_lines(registry: str, tmp_path: Path) -> None:
    file = tmp_path / "scan.yaml"
    file.write_text(PROTOCOL.replace("scanner", "copier"))
    for command in (("validate", file), ("publish", file, "--yes", "--no-impact")):
        found = lucius("protocol", *command, code=3)
        assert f"{file}:2: version 1 of SCAN has changed" in found.output
    file.write_text(OTHER.replace("[FAX]", "[SCAN]"))
    assert f"{file}:3: " in lucius("protocol", "validate", file, code=3).output
    file.write_text(OTHER.replace("service", "sevice"))
    answer = json.loads(lucius("protocol", "validate", file, "-o", "json", code=3).stdout)
    assert (answer["valid"], answer["faults"][0]["place"], answer["faults"][0]["line"]) == (False, str(file), 7)


def test_publish_asks_and_needs_the_impact(registry: str, tmp_path: Path, scripted: Any) -> None:
    file = tmp_path / "fax.yaml"
    file.write_text(OTHER)
    assert "no terminal" in lucius("protocol", "publish", file, "--no-impact", code=2).stderr
    lucius("--url", "http://127.0.0.1:9", "protocol", "publish", file, "--yes", code=4)
    scripted.on(CALL, PREVIEW)
    shown = scripted.lucius("protocol", "publish", str(file), "--yes")
    assert shown.exit_code == 0, shown.output
    assert "Of the last 200 payloads, 1 would be refused:" in shown.stdout


def test_older_version_is_published_and_said_to_be_older(registry: str, tmp_path: Path) -> None:
    file = tmp_path / "scan.yaml"
    file.write_text(PROTOCOL.replace("version: 1", "version: 3"))
    lucius("protocol", "publish", file, "--yes", "--no-impact")
    file.write_text(PROTOCOL.replace("version: 1", "version: 2"))
    assert "new jobs get version 3" in lucius("protocol", "validate", file).stdout


def test_first_protocol_is_published_into_an_empty_store(store: AppConfigThread, tmp_path: Path) -> None:
    file = tmp_path / "fax.yaml"
    file.write_text(OTHER)
    lucius("protocol", "publish", file, "--yes", "--no-impact")
    assert set(values(store)) == {"lucius:protocols:FAX:1", SENTINEL}


def test_shipped_registry_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCIUS_REGISTRY", raising=False)
    file = tmp_path / "fax.yaml"
    file.write_text(OTHER)
    lucius("protocol", "validate", file)
    assert "LUCIUS_REGISTRY is not set" in lucius("protocol", "publish", file, "--yes", "--no-impact", code=2).stderr


def test_broken_registry_and_half_a_push_keep_a_protocol_out(store: AppConfigThread, folder: Path) -> None:
    lucius("registry", "push", folder, "--yes", "--no-impact")
    file = folder / "fax.yaml"
    file.write_text(OTHER)
    store.put("lucius:tenants:acme", "id: acme\nsurprise: 1\n")
    refused = lucius("protocol", "publish", file, "--yes", "--no-impact", code=3)
    assert "lucius:tenants:acme, line 2: surprise is not a known field" in refused.stderr
    store.put("lucius:tenants:acme", "id: acme\nmax_inflight: 2\n")
    refused = lucius("protocol", "publish", file, "--yes", "--no-impact", code=3)
    assert "a key was changed without the sentinel" in refused.stderr


def test_diff_compares_with_the_server(tmp_path: Path, scripted: Any) -> None:
    file = tmp_path / "fax.yaml"
    file.write_text(OTHER)
    scripted.on(CALL, PREVIEW, PREVIEW | {"diff": []}, PREVIEW | {"problems": ["version 1 of FAX is in force"]})
    first = scripted.lucius("protocol", "diff", str(file))
    assert (first.exit_code, first.stdout.splitlines()[0]) == (1, "+id: FAX")
    assert scripted.lucius("protocol", "diff", str(file)).exit_code == 0
    refused = scripted.lucius("protocol", "diff", str(file), "-o", "json")
    assert (refused.exit_code, json.loads(refused.stdout)["problems"]) == (3, ["version 1 of FAX is in force"])


def test_diff_shows_what_the_server_finds_wrong_by_line(tmp_path: Path, scripted: Any) -> None:
    file = tmp_path / "fax.yaml"
    file.write_text("x: 1")
    faults = [{"code": "PROTOCOL_INVALID", "pointer": "/x", "detail": "line 1: x is not a known field"}]
    scripted.on(CALL, {"code": "PROTOCOL_INVALID", "detail": "1 fault", "errors": faults}, status=422)
    found = scripted.lucius("protocol", "diff", str(file))
    assert found.exit_code == 3
    assert f"{file}:1: x is not a known field" in found.stderr
