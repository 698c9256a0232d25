"""What comes from outside says what it is and nothing more: each attempt at more is refused, with its error."""

from __future__ import annotations

import csv
import io
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lucius.domain.errors import CallerError

MANUAL = """
name: {name}
data_source: {{type: manual, primary_key: Upn}}
phases:
  - name: go
    offset: T-0
    steps:
      - {{name: first, worker_id: w, function: Find, params: {{Upn: "{{{{Upn}}}}"}}, output_params: {{Found: text}}}}
      - {{name: second, worker_id: w, function: Move,
         params: {{T: "[{{{{Note}}}}] {{{{Found}}}}", Same: "{{{{Note}}}}"}}}}
"""
SOURCE = """
name: {name}
data_source:
  type: {type}
  connection: {connection}
  {query}
  primary_key: Upn
  batch_time: immediate
phases:
  - {{name: go, offset: T-0, steps: [{{name: a, worker_id: w, function: F, params: {{Upn: "{{{{Upn}}}}"}}}}]}}
"""
VARIABLE = "LUCIUS_SOURCE_MEMBERS"


def manual(name: str = "demo") -> bytes:
    return MANUAL.format(name=name).encode()


def of_source(query: str, kind: str = "sql", connection: str = VARIABLE) -> bytes:
    written = f"query: {msgspec.json.encode(query).decode()}" if kind == "sql" else ""
    return SOURCE.format(name="demo", type=kind, connection=connection, query=written).encode()


async def refused(harness: Any, content: bytes, code: str = "RUNBOOK_INVALID") -> str:
    """Every fault of a runbook that cannot be published, each of which names its line."""
    with pytest.raises(CallerError) as caught:
        await harness.publishing.publish(content, "me")
    assert {fault.code for fault in caught.value.faults} == {code}
    assert all(fault.detail.startswith("line ") for fault in caught.value.faults)
    assert await harness.fetch("SELECT COUNT(*) FROM runbooks") == [(0,)], "nothing was published"
    return "\n".join(fault.detail for fault in caught.value.faults)


async def not_taken(harness: Any, text: str) -> str:
    """Every fault of a CSV of which no batch is made."""
    await harness.publishing.publish(manual(), "me")
    with pytest.raises(CallerError) as caught:
        await harness.operations.create_batch("demo", text.encode(), harness.clock.now(), "time", "me")
    assert {fault.code for fault in caught.value.faults} == {"MEMBERS_INVALID"}
    assert await harness.fetch("SELECT COUNT(*) FROM batches") == [(0,)], "no batch was made"
    return "\n".join(fault.detail for fault in caught.value.faults)


# --- Templates -------------------------------------------------------------------------------------------------------


async def test_a_template_in_a_members_data_is_text(harness: Any) -> None:
    """Neither what the source has nor what a worker answered is ever read as a template."""
    await harness.publishing.publish(manual(), "me")
    note = "{{Upn}} {{_batch_id}} {{Found}}"
    content = f'Upn,Note\n{{{{Note}}}},"{note}"\n'.encode()
    await harness.operations.create_batch("demo", content, harness.clock.now(), "time", "me")
    jobs = await harness.run({"Find": {"text": "{{Note}} {{_batch_start_time}}"}})
    assert [job["functionName"] for job in jobs] == ["Find", "Move"]
    assert jobs[0]["parameters"] == {"Upn": "{{Note}}"}
    assert jobs[1]["parameters"] == {"T": f"[{note}] {{{{Note}}}} {{{{_batch_start_time}}}}", "Same": note}
    assert await harness.fetch("SELECT status FROM batches") == [("completed",)]


async def test_data_cannot_leave_its_place_in_a_job(harness: Any) -> None:
    """The parameters of a job are put together as bytes of JSON: no value may end them early."""
    await harness.publishing.publish(manual(), "me")
    note = '"},"workerId":"other","functionName":"Wipe","x":{"y":"\\'
    out = io.StringIO()
    csv.writer(out).writerows([["Upn", "Note"], ["u1", note]])
    await harness.operations.create_batch("demo", out.getvalue().encode(), harness.clock.now(), "time", "me")
    jobs = await harness.run({"Find": {"text": '"}]}\n' + note}})
    assert [(job["workerId"], job["functionName"]) for job in jobs] == [("w", "Find"), ("w", "Move")]
    assert jobs[1]["parameters"]["Same"] == note
    assert set(jobs[1]) == {"jobId", "batchId", "workerId", "functionName", "parameters", "correlationData"}


@pytest.mark.parametrize(
    "template",
    ["{{Upn|upper}}", "{{1+1}}", "{{config['SECRET']}}", "{{ {{Upn}} }}", "{{Upn", "{{}}", "{{_secret}}", "{{a;b}}"],
)
async def test_a_template_with_more_in_it_than_a_name_is_refused(harness: Any, template: str) -> None:
    said = await refused(harness, manual().replace(b"{{Note}}", template.encode()))
    assert said.startswith("line 10: phase go / step second / params")


async def made_before_the_column_was_needed(harness: Any, needing: bytes) -> None:
    """A batch whose members lack a column that only the next version of their runbook needs."""
    await harness.publishing.publish(manual().replace(b"{{Note}}", b"none"), "me")
    await harness.operations.create_batch("demo", b"Upn\nu1\n", harness.clock.now(), "time", "me")
    await harness.publishing.publish(needing, "me")


async def test_a_path_into_an_object_is_a_columns_name_and_no_path(harness: Any) -> None:
    """A column may have dots in its name; where none has that name, the step fails and nothing is looked up."""
    await made_before_the_column_was_needed(harness, manual().replace(b"{{Note}}", b"{{Upn.__class__.__init__}}"))
    assert [job["functionName"] for job in await harness.run({"Find": {"text": "x"}})] == ["Find"]
    [(status, reason)] = await harness.fetch(
        "SELECT status, error_message FROM step_executions WHERE step_name = 'second'"
    )
    assert status == "failed"
    assert "Upn.__class__.__init__" in reason


@pytest.mark.parametrize("text", ["{% for x in y %}", "${Upn}", "%(Upn)s", "{Upn}", "$(Upn)", "`id`"])
async def test_what_other_languages_would_expand_is_text(harness: Any, text: str) -> None:
    await harness.publishing.publish(manual().replace(b"{{Note}}", text.encode()), "me")
    await harness.operations.create_batch("demo", b"Upn\nu1\n", harness.clock.now(), "time", "me")
    jobs = await harness.run({"Find": {"text": "x"}})
    assert jobs[1]["parameters"] == {"T": f"[{text}] x", "Same": text}


async def test_an_unknown_variable_fails_its_step_which_is_not_sent_half_resolved(harness: Any) -> None:
    await made_before_the_column_was_needed(harness, manual())
    jobs = await harness.run({"Find": {"text": "x"}})
    assert [job["functionName"] for job in jobs] == ["Find"]
    rows = await harness.fetch("SELECT step_name, status, error_message FROM step_executions ORDER BY step_index")
    assert rows[0][:2] == ("first", "succeeded")
    assert rows[1][:2] == ("second", "failed")
    assert "Note" in rows[1][2]


# --- Names in SQL ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "'x\"; DROP TABLE runbooks; --'",
        '"a\'b"',
        '"a\\"b"',
        "a;b",
        "../a",
        '"a\\0b"',
        "[a]",
        '"' + "a" * 41 + '"',
        "''",
    ],
)
async def test_a_runbooks_name_that_could_say_more_than_a_name_is_refused(harness: Any, name: str) -> None:
    assert "name" in await refused(harness, manual(name))


async def test_two_names_that_would_share_a_table_are_refused(harness: Any) -> None:
    await harness.publishing.publish(manual("move-mail"), "me")
    with pytest.raises(CallerError) as caught:
        await harness.publishing.publish(manual("Move Mail"), "me")
    assert caught.value.faults[0].code == "CONFLICT"
    assert "move-mail" in caught.value.faults[0].detail


@pytest.mark.parametrize(
    "column",
    [
        'x""; DROP TABLE batches; --',
        "x'; DELETE FROM runbooks; --",
        "a;b",
        "_member_key",
        "_is_current",
        "a:b",
        "$1",
        "UPN",
    ],
)
async def test_a_column_that_could_say_more_than_a_name_is_refused(harness: Any, column: str) -> None:
    said = await not_taken(harness, f'Upn,"{column}"\nu1,1\n')
    assert "line 1" in said
    assert await harness.fetch("SELECT COUNT(*) FROM runbooks") == [(1,)]


async def test_a_column_of_a_query_is_held_to_the_same(harness: Any, tmp_path: Path) -> None:
    members = database_of(tmp_path)
    harness.environ[VARIABLE] = f"sqlite:///{members}"
    query = 'SELECT upn AS Upn, 1 AS [x" DROP TABLE batches --] FROM members'
    await harness.publishing.publish(of_source(query), "me")
    assert await harness.run() == []
    state, detail = await harness.source_of("demo")
    assert state == "failed"
    assert "rename" in detail


async def test_a_members_key_is_a_value_whatever_it_looks_like(harness: Any) -> None:
    await harness.publishing.publish(manual(), "me")
    key = "'; DROP TABLE batch_members; --"
    content = f'Upn,Note\n"{key}",x\n'.encode()
    batch = await harness.operations.create_batch("demo", content, harness.clock.now(), "time", "me")
    assert len(await harness.run({"Find": {"text": "t"}})) == 2
    assert await harness.fetch("SELECT member_key FROM batch_members") == [(key,)]
    assert (await harness.publishing.names())[0]["open_batches"] == 0
    with pytest.raises(CallerError):
        await harness.operations.remove(batch["batch_id"], ["' OR '1'='1"], "me")
    assert await harness.fetch("SELECT status FROM batch_members") == [("active",)]


# --- YAML ------------------------------------------------------------------------------------------------------------


async def test_aliases_are_refused_before_they_grow(harness: Any) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, now in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{now}: &{now} [{', '.join([f'*{before}'] * 10)}]\n"
    began = time.process_time()
    said = await refused(harness, bomb.encode())
    assert time.process_time() - began < 5.0
    assert said.startswith("line 1: ")
    assert "anchor" in said or "alias" in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: !!python/object/apply:os.system ['true']\n", 1),
        ("name: demo\ndescription: !!binary aGk=\n", 2),
        ("name: demo\ndescription: !local x\n", 2),
        ("name: demo\n<<: {description: x}\n", 2),
        ("name: demo\nname: again\n", 2),
        ("name: demo\n---\nname: again\n", 2),
        ("name: [demo\n", 1),
    ],
)
async def test_yaml_is_data_and_nothing_else(harness: Any, text: str, line: int) -> None:
    said = await refused(harness, text.encode())
    assert f"line {line}: " in said or f"line {line + 1}: " in said


async def test_yaml_is_limited_in_depth_and_size(harness: Any) -> None:
    assert "deep" in await refused(harness, b"name: " + b"[" * 5_000 + b"]" * 5_000)
    assert "deep" in await refused(harness, b"".join(b" " * at + b"a:\n" for at in range(200)))
    assert "bytes" in await refused(harness, b"name: " + b"x" * 300_000)
    assert "UTF-8" in await refused(harness, b"name: \xff\xfe\n")
    assert "control characters" in await refused(harness, b"name: demo\ndescription: \x00\n")


# --- CSV -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell", ["=cmd|' /C calc'!A0", "+SUM(A1)", "-2+3+cmd", "@SUM(1)", "\t=1+1", "＝1+1", '=HYPERLINK(""x"")']
)
async def test_a_cell_that_a_spreadsheet_would_run_is_refused(harness: Any, cell: str) -> None:
    said = await not_taken(harness, f'Upn,Note\nu1,ok\nu2,"{cell}"\n')
    assert said.startswith("line 3: column 'Note' ")
    assert "formula" in said


async def test_a_header_that_a_spreadsheet_would_run_is_refused(harness: Any) -> None:
    assert "line 1" in await not_taken(harness, 'Upn,"=1+1"\nu1,x\n')


async def test_what_goes_out_as_csv_runs_nothing(harness: Any, tmp_path: Path) -> None:
    """Neither a member's key nor a worker's error is left to a spreadsheet as a formula."""
    members = database_of(tmp_path, "=HYPERLINK(1)", "@plain")
    harness.environ[VARIABLE] = f"sqlite:///{members}"
    await harness.publishing.publish(of_source("SELECT upn AS Upn FROM members"), "me")
    assert len(await harness.run(fails="+cmd|' /C calc'!A0")) == 2
    assert {row[0] for row in await harness.fetch("SELECT member_key FROM batch_members")} == {
        "=HYPERLINK(1)",
        "@plain",
    }
    text = "".join([part async for part in harness.queries.export(1)])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0][:2] == ["member", "status"]
    assert sorted(row[0] for row in rows[1:]) == ["'=HYPERLINK(1)", "'@plain"]
    assert [row[-1] for row in rows[1:]] == ["'+cmd|' /C calc'!A0"] * 2


# --- Sources ---------------------------------------------------------------------------------------------------------


def database_of(folder: Path, *keys: str) -> Path:
    path = folder / "members s3cret-path.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE members (upn TEXT)")
        connection.executemany("INSERT INTO members VALUES (?)", [(key,) for key in keys or ("u1", "u2")])
    connection.close()
    return path


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) AS Upn FROM n"


async def test_a_query_that_runs_too_long_is_stopped_and_changes_nobody(harness: Any, tmp_path: Path) -> None:
    harness.environ[VARIABLE] = f"sqlite:///{database_of(tmp_path)}"
    await harness.publishing.publish(of_source(ENDLESS), "me")
    began = time.monotonic()
    assert await harness.run() == []
    assert time.monotonic() - began < 20.0
    state, detail = await harness.source_of("demo")
    assert state == "failed"
    assert "ran longer than 3 s and was stopped" in detail
    assert await harness.fetch("SELECT COUNT(*) FROM batches") == [(0,)]
    [(event,)] = await harness.fetch("SELECT detail FROM runbook_events WHERE kind = 'source-failed'")
    assert "ran longer" in event


@pytest.mark.parametrize(
    "query",
    [
        "SELECT upn AS Upn FROM members; DELETE FROM members",
        "DELETE FROM members",
        "/* SELECT */ DROP TABLE members",
        "PRAGMA writable_schema = 1",
        "ATTACH 'x.db' AS x",
    ],
)
async def test_a_query_that_is_not_one_select_is_refused_when_it_is_published(harness: Any, query: str) -> None:
    assert "query" in await refused(harness, of_source(query))


@pytest.mark.parametrize(
    "query",
    [
        "WITH gone AS (SELECT 1) DELETE FROM members",
        "WITH x AS (SELECT 1) INSERT INTO members SELECT 'x' FROM x",
        "SELECT upn AS Upn, load_extension('x') FROM members",
    ],
)
async def test_a_query_that_writes_is_refused_by_the_connection(harness: Any, tmp_path: Path, query: str) -> None:
    members = database_of(tmp_path)
    harness.environ[VARIABLE] = f"sqlite:///{members}"
    await harness.publishing.publish(of_source(query), "me")
    assert await harness.run() == []
    state, _ = await harness.source_of("demo")
    assert state == "failed"
    with sqlite3.connect(members) as connection:
        assert connection.execute("SELECT COUNT(*) FROM members").fetchone() == (2,)
    connection.close()
    assert await harness.fetch("SELECT COUNT(*) FROM batches") == [(0,)]


@pytest.mark.parametrize(
    "connection",
    [
        "LUCIUS_API_KEYS",
        "PATH",
        "sqlite:////etc/members.db",
        "postgresql://u:s3cret@host/db",
        "LUCIUS_SOURCE_",
        "lucius_source_x",
    ],
)
async def test_a_connection_that_is_no_variable_for_sources_is_refused(harness: Any, connection: str) -> None:
    harness.environ[connection] = "sqlite:///s3cret.db"
    said = await refused(harness, of_source("SELECT upn AS Upn FROM members", connection=f'"{connection}"'))
    assert "LUCIUS_SOURCE_" in said


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("sql", "postgresql+psycopg://someone:s3cret@127.0.0.1:1/members?connect_timeout=2"),
        ("sql", "sqlite:////nowhere/s3cret/members.db"),
        ("sql", "s3cret is no address"),
        ("sql", "nosuchdialect://someone:s3cret@host/db"),
        ("csv", "/nowhere/s3cret/members.csv"),
    ],
)
async def test_a_secret_is_neither_in_the_error_nor_in_anything_kept(harness: Any, kind: str, address: str) -> None:
    harness.environ[VARIABLE] = address
    await harness.publishing.publish(of_source("SELECT upn AS Upn FROM members", kind), "me")
    assert await harness.run() == []
    state, detail = await harness.source_of("demo")
    assert state == "failed"
    assert VARIABLE in detail
    assert "s3cret" not in await harness.everything_kept()
    with pytest.raises(CallerError) as caught:
        await harness.queries.preview("demo", 5)
    assert caught.value.faults[0].code == "SOURCE_FAILED"
    assert "s3cret" not in repr(caught.value.faults)


async def test_a_variable_that_is_not_set_is_named(harness: Any) -> None:
    await harness.publishing.publish(of_source("SELECT upn AS Upn FROM members"), "me")
    assert await harness.run() == []
    assert await harness.source_of("demo") == (
        "failed",
        f"the environment variable {VARIABLE} is not set: set it to the SQLAlchemy URL of the database, or list it in"
        " the file that LUCIUS_SOURCES_FILE names",
    )
