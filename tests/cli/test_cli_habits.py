"""Ids by prefix, several statuses, relative times, YAML, commands by flags, questions, following."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from lucius.cli.ids import is_prefix, shortened
from lucius.cli.jobs.flags import read_parameters, with_parameters
from lucius.cli.main import cli
from lucius.cli.output.yaml_lines import yaml_lines
from lucius.cli.times import read_duration

ID, OTHER = "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1a", "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1b"
JOB = {
    "jobId": ID,
    "tenant_id": "acme",
    "request_type": "OCR",
    "status": "QUEUED",
    "created_at": "2026-01-31T00:00:00Z",
}


def query(call: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(call.partition(" ")[2]).query).items()}


# --- Ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "call"),
    [
        (("get",), f"GET /v1/jobs/{ID}"),
        (("events",), f"GET /v1/jobs/{ID}/events?limit=200"),
        (("cancel",), f"POST /v1/jobs/{ID}:cancel"),
        (("redrive",), f"POST /v1/jobs/{ID}:redrive"),
        (("dismiss", "--reason", "known"), f"POST /v1/admin/dead-letters/{ID}:dismiss"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_job_is_named_by_the_first_characters_of_its_id(scripted: Any, command: tuple[str, ...], call: str) -> None:
    scripted.on("GET /v1/jobs", {"items": [JOB], "next": None})
    scripted.lucius(command[0], "019A1F2E-7C", *command[1:])
    assert query(scripted.calls[0][0]) == {"job_id_prefix": "019A1F2E-7C", "limit": "11"}
    assert scripted.calls[1][0] == call


def test_a_prefix_of_several_jobs_lists_them_and_changes_nothing(scripted: Any) -> None:
    scripted.on("GET /v1/jobs", {"items": [JOB, {**JOB, "jobId": OTHER}], "next": None})
    shown = scripted.lucius("cancel", "019a")
    assert (shown.exit_code, len(scripted.calls)) == (2, 1)
    assert "the ids of 2 jobs begin with 019a" in shown.stderr
    assert ID in shown.stderr
    assert OTHER in shown.stderr


def test_a_prefix_of_no_job_is_told_as_such_and_a_whole_id_is_not_looked_for(scripted: Any) -> None:
    scripted.on("GET /v1/jobs", {"items": [], "next": None})
    shown = scripted.lucius("get", "0199")
    assert (shown.exit_code, "JOB_NOT_FOUND: no job's id begins with 0199" in shown.stderr) == (3, True)
    scripted.lucius("get", ID)
    assert scripted.calls[-1][0] == f"GET /v1/jobs/{ID}"


def test_a_ledger_without_prefixes_asks_for_the_whole_id(scripted: Any) -> None:
    scripted.on("GET /v1/jobs", {"code": "FILTER_UNSUPPORTED", "detail": "no index for job_id_prefix"}, status=422)
    shown = scripted.lucius("get", "0199")
    assert (shown.exit_code, "give the whole id" in shown.stderr) == (2, True)


def test_an_operation_is_named_by_the_first_characters_of_its_id(scripted: Any) -> None:
    scripted.on("GET /v1/operations", {"items": [{"operationId": ID}, {"operationId": "02" + ID[2:]}], "next": None})
    scripted.on(f"GET /v1/operations/{ID}", {"operationId": ID, "status": "COMPLETED"})
    assert scripted.lucius("operations", "show", "019a").exit_code == 0
    assert "no operation's id begins with 03" in scripted.lucius("operations", "show", "03").stderr


def test_what_can_begin_an_id() -> None:
    assert all(is_prefix(ID[:end]) for end in range(1, len(ID)))
    assert not any(map(is_prefix, ("", ID, "j1", "019a1f2e7", "019a1f2e-7c3b-7d4e-8f5a-6b7c8d9e0f1aa")))


def test_ids_are_cut_where_they_differ() -> None:
    assert shortened([ID]) == [ID[:13]]
    assert shortened([ID, OTHER]) == [ID, OTHER]
    assert shortened([ID, "019a1f2e-7c3c" + ID[13:]]) == [ID[:13], "019a1f2e-7c3c"]


# --- Lists -----------------------------------------------------------------------------------------------------------


def test_a_list_takes_several_statuses_and_times_that_are_relative(scripted: Any) -> None:
    scripted.on("GET /v1/jobs", {"items": [], "next": None})
    arguments = ("list", "--status", "paused,QUEUED", "--status", "CANCELLING", "--from", "2h", "--to", "2026-01-31")
    assert scripted.lucius(*arguments).exit_code == 0
    sent = query(scripted.calls[0][0])
    assert sent["status"] == "PAUSED,QUEUED,CANCELLING"
    ago = datetime.now(UTC) - datetime.fromisoformat(sent["created_from"])
    assert timedelta(hours=2) <= ago < timedelta(hours=2, minutes=5)
    assert sent["created_to"] == "2026-01-31T00:00:00Z"
    for wrong in (("--status", "PAUSED,NONE"), ("--from", "yesterday"), ("--from", "0h")):
        assert scripted.lucius("list", *wrong).exit_code == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15M", 900), ("2w", 1_209_600), ("1.5h", None), ("h", None)]
)
def test_durations(text: str, seconds: int | None) -> None:
    assert read_duration(text) == seconds


def test_a_watched_list_without_a_terminal_prints_what_changes(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucius.cli.jobs.listing.WATCH_SECONDS", 0.01)
    ended = {**JOB, "status": "SUCCEEDED"}
    scripted.on("GET /v1/jobs", *({"items": [one], "next": None} for one in (JOB, JOB, ended)))
    shown = scripted.lucius("list", "--watch", "--timeout", "1")
    assert shown.exit_code == 5
    assert [line.split()[3] for line in shown.stdout.splitlines()] == ["STATUS", "QUEUED", "SUCCEEDED"]


def test_events_are_followed_to_the_end_of_the_job(scripted: Any) -> None:
    events = [{"seq": 1, "at": "2026-01-31T00:00:00Z", "type": "JOB_ACCEPTED"}, {"seq": 2, "type": "JOB_SUCCEEDED"}]
    stream = "".join(f"id: {one['seq']}\nevent: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    stream += 'event: end\ndata: {"status":"SUCCEEDED"}\n\n'
    scripted.on(f"GET /v1/jobs/{ID}/events", stream.encode(), headers={"Content-Type": "text/event-stream"})
    shown = scripted.lucius("events", ID, "--follow")
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, ["2026-01-31T00:00:00Z  JOB_ACCEPTED", "JOB_SUCCEEDED"])
    lines = scripted.lucius("events", ID, "--follow", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]
    assert len(list(yaml.safe_load_all(scripted.lucius("events", ID, "--follow", "-o", "yaml").stdout))) == 2


# --- YAML ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [1, {"c": [], "d": {}}, [2, [3]], "x"], "no": "yes", "t": "12:30", "n": "0x1f", "z": None},
        {"text": "two\nlines", "quote": "it's \"so\"", "colon": "a: b", "dash": "- a", "hash": "a # b", "star": "*a"},
        {"float": 1.5, "huge": 10**30, "true": True, "key with: colon": "null", "1": "2026-01-31", "~": "~", "=": "="},
        [], {}, [[], {}], "plain", "2026-01-31T00:00:00Z", None, {"ümlaut": "grün", "line": "a\u2028b"},
    ],
)  # fmt: skip
def test_yaml_says_what_json_says(value: Any) -> None:
    assert yaml.safe_load("\n".join(yaml_lines(value))) == value


def test_output_yaml_is_the_servers_answer(scripted: Any) -> None:
    scripted.on(f"GET /v1/jobs/{ID}", {**JOB, "steps": [{"stepId": "ocr", "progress": 0.5}]})
    shown = scripted.lucius("get", ID, "-o", "yaml").stdout
    assert shown.startswith(f'jobId: "{ID}"\n')
    assert yaml.safe_load(shown)["steps"] == [{"stepId": "ocr", "progress": 0.5}]


# --- Submitting ------------------------------------------------------------------------------------------------------


def test_parameters_are_json_where_they_can_be_and_lists_where_they_repeat() -> None:
    given = ["a.b=1", "a.c=text", "d=true", "e=[1, 2]", "f=x", "f=y", "/g~1h/i.j={}", "k=a=b", "l=", "m=NaN", "n=1e999"]
    assert with_parameters({"a": {"z": 0}, "f": "old"}, read_parameters(given)) == {
        "a": {"z": 0, "b": 1, "c": "text"}, "d": True, "e": [1, 2], "f": ["x", "y"], "g/h": {"i.j": {}}, "k": "a=b",
        "l": "", "m": "NaN", "n": "1e999",
    }  # fmt: skip


def test_a_command_is_submitted_by_flags(scripted: Any) -> None:
    scripted.on("POST /v1/commands", {"jobId": ID, "status": "QUEUED"}, status=202)
    shown = scripted.lucius(
        "submit", "OCR_EMBEDDING_SIS", "--tenant", "acme", "--input", "in.pdf", "--output", "https://blob/out.json",
        "-p", "sis.prompt_set=default", "-p", "sis.top=3", "--mode", "BURST", "-o", "json",
    )  # fmt: skip
    assert json.loads(shown.stdout) == {"jobId": ID, "status": "QUEUED"}
    sent = scripted.calls[0][1]
    assert re.fullmatch(r"file:///.*/in\.pdf", sent.pop("input_ref"))
    assert sent == {
        "schema_version": "1", "request_type": "OCR_EMBEDDING_SIS", "tenant_id": "acme", "mode": "BURST",
        "output_ref": "https://blob/out.json", "payload": {"sis": {"prompt_set": "default", "top": 3}},
    }  # fmt: skip


def test_a_command_like_that_of_a_job_is_a_new_job(scripted: Any) -> None:
    command = {"request_type": "SIS", "tenant_id": "acme", "payload": {"sis": {"prompt_set": "a", "top": 3}}}
    scripted.on(f"GET /v1/jobs/{ID}/command", command)
    scripted.on("POST /v1/commands", {"jobId": OTHER, "status": "QUEUED"}, status=202)
    assert scripted.lucius("submit", "--like", ID, "-p", "sis.prompt_set=b").exit_code == 0
    sent = scripted.calls[-1][1]
    assert len(sent.pop("idempotency_key")) == 32
    assert sent == {**command, "payload": {"sis": {"prompt_set": "b", "top": 3}}}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("submit",), "Name a FILE or a REQUEST_TYPE"),
        (("submit", "missing.json"), "There is no file missing.json"),
        (("submit", "SIS", "--like", ID), "Name a FILE or a REQUEST_TYPE"),
        (("submit", "SIS", "-p", "x"), "is not NAME=VALUE"),
        (("submit", "SIS", "-p", "a=1", "-p", "a.b=2"), "a is not an object"),
        (("submit", "SIS", "-o", "json", "-o", "yaml"), "--output is given twice"),
    ],
)
def test_what_cannot_be_submitted_is_told_before_anything_is_sent(
    scripted: Any, arguments: tuple[str, ...], sentence: str
) -> None:
    shown = scripted.lucius(*arguments)
    assert (shown.exit_code, scripted.calls) == (2, [])
    assert sentence in shown.stderr


# --- Questions -------------------------------------------------------------------------------------------------------

IRREVERSIBLE = {
    ("batch", "cancel", "7"): "/v1/batches/7:cancel",
    ("batch", "remove", "7", "ann"): "/v1/batches/7:remove",
    ("batch", "confirm-move", "7"): "/v1/batches/7:confirm-move",
    ("runbook", "retire", "moves"): "/v1/runbooks/moves:retire",
    ("runbook", "confirm", "moves"): "/v1/runbooks/moves:confirm",
    ("operations", "abandon", ID): f"/v1/operations/{ID}:abandon",
    ("cancel", ID, "--force", "--reason", "hangs"): f"/v1/jobs/{ID}:cancel",
}


@pytest.mark.parametrize("command", IRREVERSIBLE, ids=" ".join)
def test_what_cannot_be_taken_back_is_asked_for(
    scripted: Any, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = f"POST {IRREVERSIBLE[command]}"
    scripted.on(call, {})
    refused = scripted.lucius(*command)
    assert (refused.exit_code, scripted.calls) == (2, [])
    assert "pass --yes" in refused.stderr
    assert scripted.lucius(*command, "--yes").exit_code == 0
    assert [one[0] for one in scripted.calls] == [call]
    monkeypatch.setattr("lucius.cli.output.confirming.is_asking_possible", lambda: True)
    assert scripted.lucius(*command, input="n\n").exit_code == 1
    assert len(scripted.calls) == 1
    assert scripted.lucius(*command, input="y\n").exit_code == 0
    assert len(scripted.calls) == 2


@pytest.mark.parametrize("command", [("prune", "--older-than", "1d"), ("db", "contract")], ids=" ".join)
def test_upkeep_without_a_terminal_needs_yes(command: tuple[str, ...]) -> None:
    refused = CliRunner().invoke(cli, [*command])
    assert (refused.exit_code, "pass --yes" in refused.stderr) == (2, True)


# --- Completion ------------------------------------------------------------------------------------------------------


def completed(url: str, *words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    line = ["lucius", "--url", url, *words]
    monkeypatch.setenv("COMP_WORDS", " ".join(line))
    monkeypatch.setenv("COMP_CWORD", str(len(line) - 1))
    shown = CliRunner().invoke(cli, prog_name="lucius", env={"_LUCIUS_COMPLETE": "bash_complete"})
    return [one.partition(",")[2] for one in shown.stdout.splitlines() if one]


def test_ids_and_names_are_completed_from_the_server(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted.on("GET /v1/jobs", {"items": [JOB], "next": None})
    scripted.on("GET /v1/batches", {"items": [{"batch_id": 12}, {"batch_id": 7}], "next": None})
    scripted.on("GET /v1/runbooks", {"items": [{"name": "moves"}]})
    url = scripted.url
    assert completed(url, "get", "019a", monkeypatch=monkeypatch) == [ID]
    assert completed(url, "batch", "pause", "1", monkeypatch=monkeypatch) == ["12"]
    assert completed(url, "runbook", "stop", "m", monkeypatch=monkeypatch) == ["moves"]
    assert completed(url, "list", "--status", "PAUSED,C", monkeypatch=monkeypatch) == [
        "PAUSED,CANCELLING", "PAUSED,CANCELLED",
    ]  # fmt: skip


def test_completion_is_silent_if_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("http://127.0.0.1:1", "get", "019a", monkeypatch=monkeypatch) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    shown = CliRunner().invoke(cli, ["completion", shell])
    assert (shown.exit_code, f"_LUCIUS_COMPLETE={shell}_complete" in shown.stdout) == (0, True)
