"""The registry as a folder: what ships, what is refused and where it stands, and reloading."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from lucius.domain.envelope import EnvelopeRules, tenant_of
from lucius.domain.errors import CallerError
from lucius.domain.protocol import PolicyOverride, resolve_policy
from lucius.domain.refs import RefPolicy
from lucius.domain.routing import Mode
from lucius.local_tenant_files import LocalTenantFiles
from lucius.registries.files import SHIPPED, FileRegistry
from lucius.registries.overrides import Overrides
from lucius.registries.problems import RegistryError
from lucius.settings import Settings
from lucius.usecases.submit import prepare

FILES = LocalTenantFiles(Settings(data="/data"))

PROTOCOL = """\
id: SCAN
version: 1
request_types: [SCAN]
steps:
  - id: scan
    type: SCAN
    service: scanner
"""
SEARCHABLE = """
      schema: {{properties: {{n: {{type: integer}}, list: {{type: array}}}}}}
      searchable: {}"""


def folder(root: Path, **files: str) -> Path:
    """Files by path, with `__` for `/` and without their ending; a good protocol is there unless it is replaced."""
    for name, text in {"protocols__scan": PROTOCOL, **files}.items():
        path = root / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def problems(root: Path, **files: str) -> list[str]:
    with pytest.raises(RegistryError) as caught:
        FileRegistry(folder(root, **files))
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def only_problem(root: Path, **files: str) -> str:
    (problem,) = problems(root, **files)
    return problem


# What ships.


def test_six_protocols_ship_with_their_arrow_names() -> None:
    snapshot = FileRegistry().snapshot()
    steps = {name: [step.id for step in protocol.steps] for name, protocol in snapshot.request_types.items()}
    assert steps == {
        "OCR": ["ocr"],
        "EMBEDDING": ["embedding"],
        "SIS": ["sis"],
        "OCR_EMBEDDING": ["ocr", "embedding"],
        "OCR→EMBEDDING": ["ocr", "embedding"],
        "OCR_EMBEDDING_SIS": ["ocr", "embedding", "sis"],
        "OCR→EMBEDDING→SIS": ["ocr", "embedding", "sis"],
        "EMBEDDING_SIS": ["embedding", "sis"],
        "EMBEDDING→SIS": ["embedding", "sis"],
    }
    assert len(snapshot.protocols) == 6
    assert snapshot.tenants == {}


def test_what_ships_leaves_every_policy_to_the_settings() -> None:
    for protocol in FileRegistry().snapshot().protocols.values():
        assert protocol.job_deadline_seconds is None
        for step in protocol.steps:
            assert step.policy == PolicyOverride()
            assert step.service == step.id
            assert step.payload_pointer == ("" if len(protocol.steps) == 1 else f"/{step.id}")


def test_every_shipped_file_is_read() -> None:
    assert len(list((SHIPPED / "protocols").iterdir())) == 6
    assert FileRegistry().check() == ()


def accepts(request_type: str, payload: dict[str, Any]) -> bool:
    document = {
        "tenant_id": "a",
        "request_type": request_type,
        "input_ref": "s3://b/i",
        "output_ref": "s3://b/o",
        "payload": payload,
        "schema_version": "1",
    }
    try:
        prepare(document, tenant_of(document), FileRegistry().snapshot(), EnvelopeRules(), FILES, 0)
    except CallerError as error:
        if error.code != "PAYLOAD_INVALID":
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("request_type", "payload", "accepted"),
    [
        ("OCR", {}, True),
        ("OCR", {"language": "en", "pages": "1-3, 5", "dpi": 300}, True),
        ("OCR", {"pages": [1, 2]}, True),
        ("OCR", {"pages": 4}, True),
        ("OCR", {"pages": "all"}, False),
        ("OCR", {"pages": []}, False),
        ("OCR", {"pages": [0]}, False),
        ("OCR", {"dpi": "300"}, False),
        ("OCR", {"language": None}, False),
        ("OCR", {"ocr": {}}, False),
        ("EMBEDDING", {"chunk_size": 800, "chunk_overlap": 0, "model": "m"}, True),
        ("EMBEDDING", {"chunk_size": 0}, False),
        ("EMBEDDING", {"chunk_overlap": -1}, False),
        ("SIS", {"prompt_set": ["q"], "output": "text", "model": "m"}, True),
        ("SIS", {}, False),
        ("SIS", {"prompt_set": []}, False),
        ("SIS", {"prompt_set": [1]}, False),
        ("SIS", {"prompt_set": ["q"], "output": "xml"}, False),
        ("OCR→EMBEDDING", {}, True),
        ("OCR_EMBEDDING", {"sis": {}}, False),
        ("OCR_EMBEDDING_SIS", {"sis": {"prompt_set": ["q"]}}, True),
        ("OCR_EMBEDDING_SIS", {"ocr": {}}, False),
        ("EMBEDDING_SIS", {"sis": {"prompt_set": ["q"]}, "embedding": {"x": 1}}, False),
    ],
)
def test_shipped_payload_schemas(request_type: str, payload: dict[str, Any], accepted: bool) -> None:
    assert accepts(request_type, payload) is accepted


# What is read.


def test_full_folder_is_read(tmp_path: Path) -> None:
    protocol = """\
id: MOVE
version: 4
description: Moves things.
request_types: [MOVE, MOVE→AGAIN]
job_deadline_seconds: 3600
steps:
  - id: lift
    type: LIFT
    service: lifter
    payload:
      pointer: /a~1b
      schema: {type: object, $defs: {n: {type: integer}}, properties: {n: {$ref: '#/$defs/n'}}}
    policy: {max_attempts: 5, lease_seconds: 1.5, ack_backoff_seconds: [1, 2.5]}
  - {id: drop, type: DROP, service: dropper}
"""
    tenant = """\
id: ' ACME '
mode: SAFE
burst_allowed: false
max_inflight: 3
requests_per_second: 0.5
refs: {hosts: ['*.acme.example']}
policy: {ack_timeout_seconds: 5}
job_deadline_seconds: 60
webhook_secret_env: ACME_SECRET
"""
    settings = """\
mode: BURST
unknown_tenants_allowed: false
max_inflight_per_mode: {BURST: 10}
refs: {schemes: [https]}
"""
    snapshot = FileRegistry(
        folder(tmp_path, protocols__move=protocol, tenants__acme=tenant, globals=settings)
    ).snapshot()
    move = snapshot.request_types["MOVE→AGAIN"]
    assert move is snapshot.protocols["MOVE"]
    assert (move.version, move.description, move.job_deadline_seconds) == (4, "Moves things.", 3600)
    assert [step.payload_pointer for step in move.steps] == ["/a~1b", "/drop"]
    assert move.steps[0].policy.ack_backoff_seconds == (1.0, 2.5)
    assert move.steps[1].payload_schema == {"type": "object", "additionalProperties": False}
    acme = snapshot.tenants["acme"]
    assert (acme.id, acme.mode, acme.burst_allowed, acme.max_inflight) == ("acme", Mode.DEFAULT, False, 3)
    assert acme.refs == RefPolicy(schemes=("https",), hosts=("*.acme.example",))
    assert snapshot.settings.mode is Mode.BURST
    assert snapshot.settings.max_inflight_per_mode == {Mode.BURST: 10}
    assert not snapshot.settings.unknown_tenants_allowed


def test_globals_and_tenants_may_be_left_out_or_empty(tmp_path: Path) -> None:
    assert FileRegistry(folder(tmp_path)).snapshot().settings.refs == RefPolicy()
    assert FileRegistry(folder(tmp_path, globals="# nothing\n")).snapshot().settings.max_inflight == 100_000


def test_newest_version_of_a_protocol_serves(tmp_path: Path) -> None:
    newer = PROTOCOL.replace("version: 1", "version: 10").replace("[SCAN]", "[SCAN, RESCAN]")
    other = PROTOCOL.replace("version: 1", "version: 9")
    snapshot = FileRegistry(folder(tmp_path, protocols__a=newer, protocols__z=other)).snapshot()
    assert snapshot.protocols["SCAN"].version == 10
    assert snapshot.request_types["RESCAN"] is snapshot.request_types["SCAN"]


def test_file_scheme_is_a_default_only_where_it_is_allowed(tmp_path: Path) -> None:
    assert "file" not in FileRegistry().snapshot().settings.refs.schemes
    assert "file" in FileRegistry(file_scheme_allowed=True).snapshot().settings.refs.schemes
    files = {"tenants__a": "{id: a, refs: {hosts: [h]}}", "tenants__b": "{id: b, refs: {schemes: [https]}}"}
    tenants = FileRegistry(folder(tmp_path, **files), file_scheme_allowed=True).snapshot().tenants
    assert [refs.schemes[-1] for tenant in tenants.values() if (refs := tenant.refs)] == ["file", "https"]


def test_environment_goes_before_globals(tmp_path: Path) -> None:
    settings = "{max_inflight: 5, max_inflight_per_tenant: 4, policy: {lease_seconds: 7, max_attempts: 2}}"
    overrides = Overrides(policy=PolicyOverride(lease_seconds=1.0), max_inflight=6, job_deadline_seconds=9.0)
    merged = FileRegistry(folder(tmp_path, globals=settings), overrides).snapshot().settings
    assert (merged.max_inflight, merged.max_inflight_per_tenant, merged.job_deadline_seconds) == (6, 4, 9.0)
    policy = resolve_policy(merged.policy)
    assert (policy.lease_seconds, policy.max_attempts) == (1.0, 2)


@pytest.mark.parametrize(
    ("overrides", "variable"),
    [
        (Overrides(policy=PolicyOverride(max_attempts=0)), "LUCIUS_MAX_ATTEMPTS"),
        (Overrides(policy=PolicyOverride(ack_timeout_seconds=0.0)), "LUCIUS_ACK_TIMEOUT_SECONDS"),
        (Overrides(policy=PolicyOverride(lease_seconds=float("inf"))), "LUCIUS_LEASE_SECONDS"),
        (Overrides(policy=PolicyOverride(ack_backoff_seconds=())), "LUCIUS_ACK_BACKOFF_SECONDS"),
        (Overrides(job_deadline_seconds=-1.0), "LUCIUS_JOB_DEADLINE_SECONDS"),
        (Overrides(max_inflight=-1), "LUCIUS_MAX_INFLIGHT"),
    ],
)
def test_environment_is_held_to_the_same_limits(overrides: Overrides, variable: str) -> None:
    with pytest.raises(RegistryError, match=variable):
        FileRegistry(None, overrides)


def test_version_is_that_of_the_content(tmp_path: Path) -> None:
    one = FileRegistry(folder(tmp_path / "a")).snapshot().version
    assert FileRegistry(folder(tmp_path / "b", protocols__scan="# note\n" + PROTOCOL)).snapshot().version == one
    assert FileRegistry(folder(tmp_path / "c", tenants__t="id: t")).snapshot().version != one
    assert FileRegistry(tmp_path / "a", Overrides(max_inflight=1)).snapshot().version != one


# What is refused, and where.


@pytest.mark.parametrize(
    ("text", "line", "detail"),
    [
        ("id: [", 2, ""),
        ("id: A\n\tx: 1", 2, ""),
        ("id: &a A", 1, "anchors"),
        ("id: A\nversion: *a", 2, "anchors"),
        ("id: A\nversion: !!int '1'", 2, "tag"),
        ("id: !!python/object/apply:os.system [ls]", 1, "tag"),
        ("id: A\nversion: 1\nid: B", 3, "duplicate key 'id'"),
        ("id: A\nsteps:\n  - {id: x, id: y}", 3, "duplicate key 'id'"),
        ("<<: {id: A}", 1, "merge"),
        ("? [a]\n: 1", 1, "plain text"),
        ("id: A\n---\nid: B", 2, ""),
        ("- id: A", 1, "mapping"),
        ("", 1, "mapping"),
        ("id: A\nx: " + "[" * 40 + "]" * 40, 2, "deeper"),
        ("# " + "x" * 300_000, 1, "bytes"),
    ],
)
def test_yaml_is_refused_with_its_line(tmp_path: Path, text: str, line: int, detail: str) -> None:
    problem = only_problem(tmp_path, protocols__bad=text)
    assert problem.startswith(f"protocols/bad.yaml:{line}: ")
    assert detail in problem


def test_file_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (folder(tmp_path) / "globals.yaml").write_bytes(b"mode: BURST\n\xff")
    assert only_problem(tmp_path).startswith("globals.yaml:2: ")


def test_yaml_reads_words_and_times_as_text(tmp_path: Path) -> None:
    text = PROTOCOL.replace("version: 1", "version: 1\ndescription: no").replace("scanner", "1:30".replace(":", "-"))
    assert FileRegistry(folder(tmp_path, protocols__scan=text)).snapshot().protocols["SCAN"].description == "no"


@pytest.mark.parametrize(
    ("old", "new", "line", "detail"),
    [
        ("id: SCAN\n", "", 1, "missing required field id"),
        ("version: 1\n", "", 1, "missing required field version"),
        ("version: 1", "version: '1'", 2, "expected int"),
        ("version: 1", "version: 0", 2, "1 or more"),
        ("version: 1", "version: 1\nsurprise: 1", 3, "surprise is not a known field"),
        ("id: SCAN", "id: ''", 1, "an id has"),
        ("id: SCAN", "id: a/b", 1, "an id has"),
        ("[SCAN]", "[]", 3, "request types"),
        ("[SCAN]", "[SCAN, SCAN]", 3, "is given twice"),
        ("[SCAN]", "['A B']", 3, "white space"),
        ("[SCAN]", "SCAN", 3, "expected array"),
        ("    service: scanner\n", "", 5, "missing required field service"),
        ("id: scan", "id: a:b", 5, "a step's id"),
        ("type: SCAN", "type: ../x", 6, "a step's type"),
        ("service: scanner", "service: 'x y'", 7, "subscription"),
        ("service: scanner", "service: scanner\n    surprise: 1", 8, "surprise is not a known field"),
        ("service: scanner", "service: scanner\n  - {id: scan, type: X, service: x}", 8, "is given twice"),
        ("service: scanner", "service: scanner\n    payload: {pointer: x}", 8, "JSON pointer"),
        ("service: scanner", "service: scanner\n    payload: {searchable: [n]}", 8, "n is not among the properties"),
        ("service: scanner", f"service: scanner\n    payload:{SEARCHABLE.format('[n, n]')}", 10, "given twice"),
        ("service: scanner", f"service: scanner\n    payload:{SEARCHABLE.format('[list]')}", 10, "list is an array"),
        ("service: scanner", f"service: scanner\n    payload:{SEARCHABLE.format('[a=b]')}", 10, "characters without ="),
        ("service: scanner", f"service: scanner\n    payload:{SEARCHABLE.format([*range(9)])}", 10, "expected str"),
        ("service: scanner", "service: scanner\n    payload: {pointer: /a~2}", 8, "JSON pointer"),
        ("service: scanner", "service: scanner\n    payload:\n      schema: {type: nope}", 9, "cannot be used"),
        ("service: scanner", "service: scanner\n    payload:\n      schema: {pattern: '('}", 9, "cannot be used"),
        (
            "service: scanner",
            "service: scanner\n    payload:\n      schema: {$ref: 'https://x.example/s'}",
            9,
            "cannot be",
        ),
        (
            "service: scanner",
            "service: scanner\n    payload:\n      schema: {$ref: 'file:///etc/x'}",
            9,
            "cannot be used",
        ),
        ("service: scanner", "service: scanner\n    payload:\n      schema: {$ref: 'other.json'}", 9, "cannot be used"),
        ("service: scanner", "service: scanner\n    payload:\n      schema: {$ref: '#/$defs/x'}", 9, "cannot be used"),
        ("version: 1", "version: 1\njob_deadline_seconds: .inf", 3, "job_deadline_seconds"),
        ("version: 1", "version: 1\njob_deadline_seconds: 0", 3, "job_deadline_seconds"),
        ("version: 1", "version: 1\njob_deadline_seconds: null", 3, "job_deadline_seconds"),
    ],
)
def test_protocol_is_refused_with_its_line(tmp_path: Path, old: str, new: str, line: int, detail: str) -> None:
    problem = only_problem(tmp_path, protocols__scan=PROTOCOL.replace(old, new, 1))
    assert problem.startswith(f"protocols/scan.yaml:{line}: ")
    assert detail in problem


@pytest.mark.parametrize("limit", ["ack_timeout_seconds", "lease_seconds", "max_step_seconds", "queue_timeout_seconds"])
@pytest.mark.parametrize("value", ["null", "0", "-1", "-0.0", ".inf", "-.inf", ".nan", "1e99"])
def test_step_without_a_limit_is_refused(tmp_path: Path, limit: str, value: str) -> None:
    text = f"{PROTOCOL}    policy:\n      {limit}: {value}\n"
    problem = only_problem(tmp_path, protocols__scan=text)
    assert problem.startswith(f"protocols/scan.yaml:9: {limit} must be above 0")


@pytest.mark.parametrize("value", ["null", "0", "-1", "101"])
def test_step_without_a_number_of_attempts_is_refused(tmp_path: Path, value: str) -> None:
    problem = only_problem(tmp_path, protocols__scan=f"{PROTOCOL}    policy: {{max_attempts: {value}}}\n")
    assert problem.startswith("protocols/scan.yaml:8: max_attempts must be from 1")


@pytest.mark.parametrize("value", ["null", "[]", "[-1]", "[.inf]", "[.nan]"])
def test_step_without_a_backoff_is_refused(tmp_path: Path, value: str) -> None:
    problem = only_problem(tmp_path, protocols__scan=f"{PROTOCOL}    policy: {{ack_backoff_seconds: {value}}}\n")
    assert problem.startswith("protocols/scan.yaml:8: ack_backoff_seconds must list")


def test_two_protocols_cannot_claim_one_request_type(tmp_path: Path) -> None:
    other = PROTOCOL.replace("id: SCAN", "id: OTHER").replace("[SCAN]", "\n  - X\n  - SCAN")
    problem = only_problem(tmp_path, protocols__other=other)
    assert problem == "protocols/scan.yaml:3: the request type SCAN is already served by OTHER"


def test_one_version_cannot_stand_in_two_files(tmp_path: Path) -> None:
    assert "is in protocols/again.yaml too" in only_problem(tmp_path, protocols__again=PROTOCOL)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("{}", "missing required field id"),
        ("id: a/b", "tenant_id must not hold"),
        ("id: 1", "expected str"),
        ("id: a\nmode: FAST", "2: invalid enum value"),
        ("id: a\nmax_inflight: -1", "2: max_inflight must be 0 or more"),
        ("id: a\nrequests_per_second: 0", "2: a rate is"),
        ("id: a\nrefs: {schemes: []}", "2: without a scheme"),
        ("id: a\nrefs:\n  schemes: ['https://']", "3: a scheme"),
        ("id: a\nrefs:\n  hosts: ['https://h/']", "3: a host"),
        ("id: a\nrefs:\n  containers: [a/b]", "3: a container"),
        ("id: a\nrefs:\n  surprise: 1", "3: surprise is not a known field"),
        ("id: a\npolicy:\n  lease_seconds: 0", "3: lease_seconds"),
        ("id: a\npolicy:\n  surprise: 0", "3: surprise is not a known field"),
        ("id: a\njob_deadline_seconds: 0", "2: job_deadline_seconds"),
        ("id: a\nwebhook_secret_env: 'whsec_abc/+='", "2: this is the name of an environment variable"),
        ("id: a\nwebhook_secret: 'whsec_abc/+='", "2: this is a reference to a secret"),
        ("id: a\nwebhook_secret: keyvault://vault", "2: a Key Vault reference must be keyvault://VAULT/SECRET"),
        ("id: a\nwebhook_secret_env: A\nwebhook_secret: keyvault://v/s", "3: the secret is given twice"),
        ("id: a.b\nrunbooks: {workers: [w]}", "2: this tenant cannot have runbooks"),
        ("id: a\nrunbooks:\n  connections: [DATABASE_URL]", "3: a connection is named LUCIUS_SOURCE_"),
        ("id: a\nrunbooks:\n  workers:\n    - w\n    - '*'", "5: a worker id has"),
        ("id: a\nrunbooks:\n  own_workers: [a b]", "3: a worker id has"),
        ("id: a\nrunbooks:\n  surprise: []", "3: surprise is not a known field"),
    ],
)
def test_tenant_is_refused_with_its_line(tmp_path: Path, text: str, detail: str) -> None:
    problem = only_problem(tmp_path, tenants__a=text)
    assert problem.startswith("tenants/a.yaml:")
    assert detail in problem


def test_tenants_do_not_share_a_worker_that_one_of_them_owns(tmp_path: Path) -> None:
    owner, user = "id: a\nrunbooks: {own_workers: [w, v]}", "id: b\nrunbooks:\n  workers: [u]\n  own_workers: [w]"
    for first, second in ((owner, user), (user, owner)):
        problem = only_problem(tmp_path, tenants__a=first, tenants__b=second)
        assert problem.startswith("tenants/b.yaml:")
        assert "the worker w is listed by" in problem
    user = user.replace("own_workers", "workers_").replace("workers: [u]\n  workers_: [w]", "workers: [w]")
    problem = only_problem(tmp_path, tenants__a=user, tenants__b=owner)
    assert problem.endswith("the worker w is listed by b too, but the tenant that owns it, a, does not share it")
    shared = FileRegistry(folder(tmp_path, tenants__a=user, tenants__b=user.replace("id: b", "id: c"))).snapshot()
    assert {one.runbooks.workers for one in shared.tenants.values()} == {("w",)}


def test_two_files_cannot_settle_one_tenant(tmp_path: Path) -> None:
    assert only_problem(tmp_path, tenants__a="id: acme", tenants__b="mode: BURST\nid: ACME").startswith(
        "tenants/b.yaml:2:"
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("surprise: 1", "1: surprise is not a known field"),
        ("mode: DEFAULT\nmax_inflight: -1", "2: max_inflight"),
        ("max_inflight_per_mode:\n  BURST: -1", "2: BURST must be 0 or more"),
        ("max_inflight_per_mode:\n  FAST: 1", "invalid enum value"),
        ("policy: {ack_timeout_seconds: null}", "1: ack_timeout_seconds"),
        ("refs: {schemes: [HTTPS]}", "1: a scheme"),
        ("requests_per_second: -1", "1: a rate"),
        ("[]", "mapping"),
    ],
)
def test_globals_are_refused_with_their_line(tmp_path: Path, text: str, detail: str) -> None:
    problem = only_problem(tmp_path, globals=text)
    assert problem.startswith("globals.yaml:")
    assert detail in problem


def test_every_broken_file_is_named(tmp_path: Path) -> None:
    found = problems(tmp_path, protocols__a="id: [", tenants__b="id: a/b", globals="x: 1")
    assert [problem.split(":")[0] for problem in found] == ["globals.yaml", "protocols/a.yaml", "tenants/b.yaml"]


def test_every_fault_of_a_protocol_is_named(tmp_path: Path) -> None:
    text = PROTOCOL.replace("id: SCAN", "id: a/b").replace("version: 1", "version: 0").replace("scanner", "'x y'")
    found = problems(tmp_path, protocols__scan=f"{text}    policy: {{max_attempts: 0, lease_seconds: 0}}\n")
    assert len(found) == 5


def test_folder_without_protocols_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no protocol here"):
        FileRegistry(tmp_path)
    with pytest.raises(RegistryError, match="no protocol here"):
        FileRegistry(tmp_path / "missing")


def test_other_ending_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    (folder(tmp_path) / "protocols" / "other.yml").write_text(PROTOCOL)
    (tmp_path / "protocols" / ".scan.yaml").write_text("[half written")
    assert only_problem(tmp_path) == "protocols/other.yml:1: this file is not read; its name must end in .yaml"


# Reloading.


def test_reload_takes_up_new_changed_and_removed_files(tmp_path: Path) -> None:
    registry = FileRegistry(folder(tmp_path))
    first = registry.snapshot()
    assert not registry.reload()
    folder(tmp_path, protocols__more=PROTOCOL.replace("SCAN", "MORE"), tenants__t="{id: t, max_inflight: 1}")
    assert registry.reload()
    assert set(registry.snapshot().request_types) == {"SCAN", "MORE"}
    folder(tmp_path, tenants__t="{id: t, max_inflight: 2}")
    assert registry.reload()
    assert registry.snapshot().tenants["t"].max_inflight == 2
    (tmp_path / "tenants" / "t.yaml").unlink()
    (tmp_path / "protocols" / "more.yaml").unlink()
    assert registry.reload()
    assert registry.snapshot().version == first.version
    assert first.tenants == {}


def test_reload_notices_a_change_that_keeps_time_and_size(tmp_path: Path) -> None:
    registry = FileRegistry(folder(tmp_path, tenants__t="{id: t, max_inflight: 1}"))
    path = tmp_path / "tenants" / "t.yaml"
    before = path.stat()
    path.write_text("{id: t, max_inflight: 2}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert registry.reload()
    assert registry.snapshot().tenants["t"].max_inflight == 2


def test_broken_file_leaves_the_last_good_state_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = FileRegistry(folder(tmp_path))
    good = registry.snapshot()
    folder(tmp_path, tenants__t="id: t\nmax_inflight: many")
    with caplog.at_level(logging.ERROR, "lucius.registry"):
        assert not registry.reload()
        assert not registry.reload()
    assert registry.snapshot() is good
    assert [str(problem) for problem in registry.problems] == ["tenants/t.yaml:2: expected int | null, got str"]
    assert [record.getMessage() for record in caplog.records] == [f"registry not reloaded: {registry.problems[0]}"]
    (tmp_path / "tenants" / "t.yaml").unlink()
    registry.reload()
    assert registry.problems == ()


def test_check_reads_the_folder_and_changes_nothing(tmp_path: Path) -> None:
    registry = FileRegistry(folder(tmp_path))
    good = registry.snapshot()
    folder(tmp_path, globals="x: 1")
    assert len(registry.check()) == 1
    assert registry.problems == ()
    assert registry.snapshot() is good


def test_changed_schema_is_in_force_at_once(tmp_path: Path) -> None:
    registry = FileRegistry(folder(tmp_path))
    document = {
        **{"tenant_id": "a", "request_type": "SCAN", "input_ref": "s3://b/i", "output_ref": "s3://b/o"},
        **{"payload": {"n": 1}, "schema_version": "1"},
    }
    with pytest.raises(CallerError):
        prepare(document, tenant_of(document), registry.snapshot(), EnvelopeRules(), FILES, 0)
    changed = PROTOCOL.replace("version: 1", "version: 2")
    folder(tmp_path, protocols__scan=changed + "    payload: {schema: {required: [n]}}\n")
    registry.reload()
    assert prepare(document, tenant_of(document), registry.snapshot(), EnvelopeRules(), FILES, 0)


def test_watch_reloads_until_it_is_cancelled(tmp_path: Path) -> None:
    registry = FileRegistry(folder(tmp_path))

    async def scenario() -> None:
        watching = asyncio.create_task(registry.watch(0.01))
        folder(tmp_path, tenants__t="id: t")
        for _ in range(1000):
            if "t" in registry.snapshot().tenants:
                break
            await asyncio.sleep(0.01)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    asyncio.run(scenario())
    assert "t" in registry.snapshot().tenants
