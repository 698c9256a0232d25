"""Looking around: what each command makes of the server's answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lucius.cli.inspect import commands as inspect
from lucius.cli.inspect.schemas import limits_text, schema_table, type_text

NOW = datetime(2026, 1, 31, 8, 16, 0, tzinfo=UTC)

PROTOCOL: dict[str, Any] = {
    "id": "INVOICE",
    "version": 3,
    "description": "Reads invoices.",
    "request_types": ["INVOICE", "OCR→BOOK"],
    "steps": [
        {"stepId": "ocr", "step_type": "OCR", "service": "reader", "payload_pointer": "/ocr",
         "payload_schema": {"type": "object", "additionalProperties": False, "required": ["pages"], "properties": {
             "pages": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1},
                       "description": "The pages to read."}}}},
        {"stepId": "book", "step_type": "BOOK", "service": "books", "payload_pointer": "", "payload_schema": {}},
    ],
}  # fmt: skip


def lane(number: int, *subscriptions: dict[str, Any]) -> dict[str, Any]:
    return {"lane": number, "topic": f"global-bus-p{number}", "subscriptions": list(subscriptions)}


def held(service: str, ready: int = 0, locked: int = 0, dead: int = 0, seconds: float | None = None) -> dict[str, Any]:
    oldest_at = None if seconds is None else (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    return {"service": service, "ready": ready, "locked": locked, "dead": dead, "oldest_at": oldest_at}


@pytest.mark.parametrize(
    ("command", "call", "answer"),
    [
        (("protocols",), "GET /v1/protocols", {"items": [PROTOCOL], "next": None}),
        (("protocols", "OCR→BOOK"), "GET /v1/protocols/OCR%E2%86%92BOOK", PROTOCOL),
        (("lanes",), "GET /v1/admin/lanes", {"items": [lane(0, held("ocr"))], "next": None}),
        (("tenants",), "GET /v1/admin/tenants", {"items": [], "next": None, "inflight": 0, "max_inflight": 9}),
        (("workers",), "GET /v1/admin/workers", {"items": [], "next": None}),
        (("dead-letters",), "GET /v1/admin/dead-letters", {"items": [], "messages": [], "next": None}),
    ],
)
def test_json_is_the_servers_own(scripted: Any, command: tuple[str, ...], call: str, answer: dict[str, Any]) -> None:
    scripted.on(call, answer)
    shown = scripted.lucius(*command, "--output", "json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert json.loads(shown.stdout) == answer


def test_protocols_are_listed_with_their_steps(scripted: Any) -> None:
    scripted.on("GET /v1/protocols", {"items": [PROTOCOL], "next": None})
    lines = scripted.lucius("protocols").stdout.splitlines()
    assert lines[0].split() == ["ID", "VERSION", "STEPS", "REQUEST", "TYPES", "DESCRIPTION"]
    assert lines[1] == "INVOICE  3        ocr → book  INVOICE, OCR→BOOK  Reads invoices."


def test_one_protocol_is_shown_with_what_its_payloads_hold(scripted: Any) -> None:
    scripted.on("GET /v1/protocols/INVOICE", PROTOCOL)
    shown = scripted.lucius("protocols", "INVOICE").stdout
    for part in (
        "INVOICE, version 3", "Reads invoices.", "Request types: INVOICE, OCR→BOOK",
        "1. ocr, by service reader, with the part /ocr of the payload:",
        "pages  yes       list of integer  The pages to read. (at least 1 items, each at least 1)", "No other fields.",
        "2. book, by service books, with the whole payload:", "Any fields.",
    ):  # fmt: skip
        assert part in shown


def test_protocol_that_is_unknown_is_refused(scripted: Any) -> None:
    scripted.on("GET /v1/protocols/NOPE", {"code": "NOT_FOUND", "detail": "there is no such protocol"}, status=404)
    assert scripted.lucius("protocols", "NOPE").exit_code == 3


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "any"),
        (True, "any"),
        ({"type": "string"}, "string"),
        ({"type": ["integer", "null"]}, "integer or null"),
        ({"type": "array", "items": {"enum": ["a", 1]}}, 'list of "a" or 1'),
        ({"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "string"}]}, "string or list of any"),
        ({"const": "x"}, '"x"'),
    ],
)
def test_types_are_told_in_words(schema: Any, text: str) -> None:
    assert type_text(schema) == text


def test_limits_are_told_in_words() -> None:
    assert limits_text({"minLength": 1, "maxLength": 35, "pattern": "^a$"}) == "(1 to 35 characters, matching ^a$)"
    assert limits_text({"maximum": 9, "default": 3}) == "(at most 9, default 3)"
    assert limits_text({}) == ""


def test_fields_within_fields_are_named_by_their_path_to_a_limit() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    for _ in range(50):
        schema = {"properties": {"in": {**schema, "required": ["a"]}, "of": {"type": "array", "items": schema}}}
    table = schema_table(schema)
    assert table is not None
    assert len(table.rows) <= 200
    assert {"in.in", "of[].of"} <= {row[0] for row in table.rows}
    assert schema_table({"type": "object"}) is None


def test_lanes_show_what_holds_something_and_sum_it_up(scripted: Any) -> None:
    items = [lane(0, held("ocr", ready=3, locked=1, seconds=200), held("sis")), lane(1, held("ocr", dead=2))]
    scripted.on("GET /v1/admin/lanes", {"items": items, "next": None})
    header, first, second, summary = scripted.lucius("lanes").stdout.splitlines()
    assert header.split() == [
        "LANE", "SERVICE", "READY", "LOCKED", "DEAD", "OLDEST", "UNSENT", "AGAIN", "CONSUMERS",
    ]  # fmt: skip
    assert first.split()[:7] == ["0", "ocr", "3", "1", "0", "3", "min"]
    assert second.split() == ["1", "ocr", "0", "0", "2", "0", "0", "0"]
    assert summary.startswith("2 lanes: 3 ready, 1 locked, 2 dead; the oldest has waited 3 min")
    assert len(scripted.lucius("lanes", "--all").stdout.splitlines()) == 5


def test_lanes_show_what_is_not_on_the_bus_yet(scripted: Any) -> None:
    flooded = held("ocr", ready=16) | {"unsent": 40, "held": 38, "redelivered": 2, "consumers": 3}
    scripted.on(
        "GET /v1/admin/lanes", {"items": [lane(0, flooded), lane(1, held("sis") | {"unsent": 1})], "next": None}
    )
    _, first, second, summary = scripted.lucius("lanes").stdout.splitlines()
    assert first.split()[-5:] == ["40", "(38", "held)", "2", "3"]
    assert second.split()[:2] == ["1", "sis"]
    assert summary.startswith("2 lanes: 16 ready, 0 locked, 0 dead, 41 unsent")


def test_lanes_at_rest_say_so(scripted: Any) -> None:
    scripted.on("GET /v1/admin/lanes", {"items": [lane(number, held("ocr")) for number in range(16)], "next": None})
    shown = scripted.lucius("lanes")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "16 lanes, nothing queued\n")
    shown = scripted.lucius("lanes", "--all")
    assert len(shown.stdout.splitlines()) == 17
    assert shown.stderr == "16 lanes, nothing queued\n"


def test_tenants_show_how_full_their_limits_are(scripted: Any) -> None:
    acme = {"tenant_id": "acme", "registered": True, "mode": "BURST", "burst_allowed": True}
    demo = {"tenant_id": "demo", "registered": False, "mode": None, "burst_allowed": False}
    items = [{**acme, "inflight": 7, "max_inflight": 9}, {**demo, "inflight": 0, "max_inflight": 5}]
    answer = {"items": items, "next": None, "inflight": 7, "max_inflight": 100}
    scripted.on("GET /v1/admin/tenants", answer, {**answer, "items": [], "inflight": 0})
    assert [line.split() for line in scripted.lucius("tenants").stdout.splitlines()] == [
        ["TENANT", "REGISTERED", "MODE", "BURST", "IN", "FLIGHT"],
        ["acme", "yes", "BURST", "allowed", "7", "/", "9"],
        ["demo", "no", "global", "no", "0", "/", "5"],
        ["Total", "in", "flight:", "7", "/", "100"],
    ]
    empty = scripted.lucius("tenants")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "No tenant is registered" in empty.stderr
    assert "0 / 100" in empty.stderr


def test_dead_letters_show_jobs_and_messages(scripted: Any) -> None:
    job = {
        "jobId": "j1", "tenant_id": "demo", "request_type": "OCR", "current_step_id": "ocr",
        "completed_at": (datetime.now(UTC) - timedelta(hours=3, minutes=1)).isoformat(),
        "error": {"code": "OOM", "message": "out of\nmemory"},
    }  # fmt: skip
    message = {
        "messageId": "j2:ocr:1", "topic": "global-bus-p3", "subscription": "ocr", "delivery_count": 10,
        "reason": "delivered 10 times", "dead_at": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    scripted.on("GET /v1/admin/dead-letters", {"items": [job], "messages": [message], "next": "c2"})
    shown = scripted.lucius("dead-letters", "--limit", "1", "--cursor", "c1")
    assert scripted.calls[-1][0] == "GET /v1/admin/dead-letters?limit=1&cursor=c1"
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["JOB", "TENANT", "TYPE", "STEP", "WHEN", "ERROR"]
    assert lines[1] == "j1   demo    OCR   ocr   3 h 01 min ago  OOM: out of memory"
    assert lines[3] == "Messages that the bus gave up on:"
    assert lines[5].split()[:4] == ["j2:ocr:1", "global-bus-p3", "ocr", "10"]
    assert lines[5].endswith("delivered 10 times")
    assert "There are more: --cursor c2" in shown.stderr
    assert "There may be more messages" in shown.stderr


def test_dead_letters_say_which_batch_a_message_is_about(scripted: Any) -> None:
    about = {"batch_id": 7, "phase": "cutover", "member": "ann", "step": "finish"}
    message = {
        "messageId": "step-3-a1", "topic": "jobs", "subscription": "exchange", "delivery_count": 10,
        "reason": "DELIVERED_TOO_OFTEN", "dead_at": datetime.now(UTC).isoformat(), "runbook": about,
    }  # fmt: skip
    other = message | {"messageId": "j2:ocr:1", "runbook": None}
    scripted.on("GET /v1/admin/dead-letters", {"items": [], "messages": [message, other], "next": None})
    lines = scripted.lucius("dead-letters").stdout.splitlines()
    assert "BATCH" in lines[2].split()
    assert "7 / cutover / ann / finish" in lines[3]


def test_send_again_says_how_many_messages_it_sent(scripted: Any) -> None:
    scripted.on("POST /v1/batches/7:send-again", {"batch_id": 7, "sent": ["step-3-a1"], "more": True})
    shown = scripted.lucius("batch", "send-again", "7", "step-3-a1")
    assert scripted.calls[-1][1] == {"messages": ["step-3-a1"]}
    assert shown.stdout == "Batch 7: 1 message sent again.\n"
    assert "repeat the command" in shown.stderr


def test_approve_and_refuse_name_the_phase_and_what_is_missing(scripted: Any) -> None:
    answer = {"batch_id": 7, "phase": "cut over", "status": "active", "approvals_missing": 1}
    scripted.on("POST /v1/batches/7/phases/cut%20over:approve", answer)
    shown = scripted.lucius("batch", "approve", "7", "cut over", "--reason", "fine")
    assert scripted.calls[-1][1] == {"reason": "fine"}
    assert shown.stdout == "Batch 7: phase cut over is approved, and it needs 1 more approval.\n"
    scripted.on("POST /v1/batches/7/phases/cut%20over:refuse", answer | {"approvals_missing": 0, "status": "failed"})
    shown = scripted.lucius("batch", "refuse", "7", "cut over")
    assert shown.stdout == "Batch 7: phase cut over is refused. Neither it nor a later phase begins.\n"


def test_no_dead_letters_are_said_plainly(scripted: Any) -> None:
    scripted.on("GET /v1/admin/dead-letters", {"items": [], "messages": [], "next": None})
    shown = scripted.lucius("dead-letters")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr.splitlines() == ["No failed jobs.", "No dead messages."]


def test_a_summary_of_one_lane_counts_one() -> None:
    assert inspect.lane_summary([lane(0)], NOW) == "1 lane, nothing queued"


# --- Validate --------------------------------------------------------------------------------------------------------


def command_file(folder: Path) -> str:
    path = folder / "command.json"
    path.write_text(json.dumps({"tenant_id": "demo", "input_ref": "a.pdf", "output_ref": "s3://b/c"}))
    return str(path)


def test_valid_command_is_shown_with_what_it_would_become(scripted: Any, tmp_path: Path) -> None:
    answer = {"valid": True, "protocol_id": "INVOICE", "steps": PROTOCOL["steps"], "lane": 4, "mode": "DEFAULT"}
    scripted.on("POST /v1/commands:validate", {**answer, "errors": []})
    shown = scripted.lucius("validate", command_file(tmp_path))
    assert shown.exit_code == 0
    assert [line.split(maxsplit=1) for line in shown.stdout.splitlines()[1:]] == [
        ["Protocol", "INVOICE"], ["Steps", "ocr → book"], ["Lane", "4"], ["Mode", "DEFAULT"],
    ]  # fmt: skip
    assert scripted.calls[-1][1]["input_ref"] == f"{tmp_path.as_uri()}/a.pdf"
    assert scripted.lucius("validate", command_file(tmp_path), "-o", "json").exit_code == 0


def test_command_with_faults_names_each_and_is_exit_code_3(scripted: Any, tmp_path: Path) -> None:
    faults = [
        {"code": "REQUEST_TYPE_UNKNOWN", "pointer": "/request_type", "detail": "no protocol serves \x1b[2Jit"},
        {"code": "ENVELOPE_INVALID", "pointer": "", "detail": "too many fields"},
    ]
    answer = {"valid": False, "protocol_id": None, "steps": [], "lane": None, "mode": None, "errors": faults}
    scripted.on("POST /v1/commands:validate", answer)
    ended = scripted.lucius("validate", command_file(tmp_path))
    assert (ended.exit_code, ended.stdout) == (3, "")
    for part in ("2 faults", "/request_type: no protocol serves", "(whole body): too many", "`lucius protocols` lists"):
        assert part in ended.stderr
    assert "\x1b" not in ended.stderr
    shown = scripted.lucius("validate", command_file(tmp_path), "-o", "json")
    assert (shown.exit_code, json.loads(shown.stdout)) == (3, answer)
    piped = scripted.lucius("validate", "-", input='{"tenant_id": "demo"}')
    assert "Standard input is not a valid command" in piped.stderr


def test_workers_are_listed_with_what_they_told(scripted: Any) -> None:
    seen = {"kind": "service", "name": "ocr", "instance": "scanner-1", "version": "2.1", "in_work": 3, "present": True}
    at = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    scripted.on("GET /v1/admin/workers", {"items": [seen | {"last_seen_at": at}], "next": None})
    lines = scripted.lucius("workers").stdout.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "INSTANCE", "THERE", "LAST", "SEEN", "IN", "WORK", "THEN", "VERSION"]
    assert lines[1].split()[:4] == ["service", "ocr", "scanner-1", "yes"]
    assert lines[1].split()[-2:] == ["3", "2.1"]


def test_nobody_is_said_with_what_to_do(scripted: Any) -> None:
    scripted.on("GET /v1/admin/workers", {"items": [], "next": None})
    assert "start a service" in scripted.lucius("workers").stderr


def test_lanes_say_that_nobody_asks(scripted: Any) -> None:
    waiting = held("ocr", ready=2, seconds=5) | {"note": "no service `ocr` has asked for work yet"}
    scripted.on("GET /v1/admin/lanes", {"items": [lane(0, waiting), lane(1, waiting)], "next": None})
    assert scripted.lucius("lanes").stderr == "No service `ocr` has asked for work yet.\n"
