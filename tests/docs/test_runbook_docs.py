"""What the pages about runbooks say is what the code has: keys, messages, tables, states, settings, events, errors."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pages import DOCS, REFERENCE, ROOT, blocks, read, section, table_rows

from lucius.functions import FunctionWorker, WorkerSettings
from lucius.functions.job import FIELDS
from lucius.runbooks.core import messages
from lucius.runbooks.core.definition.reading import read_runbook
from lucius.runbooks.core.states import BATCH, BATCH_RETRIED, KINDS, MEMBER, PHASE, RETRIED, STEP
from lucius.runbooks.engine.facts import Outcome
from lucius.runbooks.store.data_tables import SYSTEM_COLUMNS
from lucius.sql.batch_pause_tables import BATCH_PAUSES
from lucius.sql.runbook_tables import DECISIONS, MOVED_DATES, RUNBOOK_HANDLED, RUNBOOK_TABLES, TOKENS_AND_ABSENCES
from lucius.sql.runbook_tenants import RUNBOOK_TENANTS
from lucius.sql.runbook_wait_tables import RUNBOOK_WAITS
from lucius.sql.step_count_tables import STEP_COUNTS

MESSAGES = read(REFERENCE / "runbook-messages.md")
TABLES = read(REFERENCE / "runbook-tables.md")
WRITE = read(DOCS / "how-to" / "write-a-runbook.md")
OPERATE = read(DOCS / "how-to" / "run-a-migration.md")
WORKER = read(DOCS / "how-to" / "write-a-function-worker.md")
RUNBOOKS = ROOT / "src" / "lucius" / "runbooks"


def block(page: str, language: str, number: int = 0) -> str:
    return [content for found, content in blocks(page) if found == language][number]


EXAMPLE = block(WRITE, "yaml")


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- Messages --------------------------------------------------------------------------------------------------------


def sent() -> list[Any]:
    change = [
        messages.member_change(kind, "vpn", 3, 42, 505, "ann")
        for kind in (messages.MEMBER_ADDED, messages.MEMBER_REMOVED)
    ]
    due = messages.phase_due("vpn", 3, 42, (108, "switch", 60, 0), [501])
    poll = messages.poll_check("vpn", 3, 42, "step", 1042, "roll-out", 5, 7)
    return [messages.batch_init("vpn", 3, 42, 0, 150), *due, *change, poll]


def test_messages_page_has_every_message_with_its_fields_and_properties() -> None:
    assert [msgspec.json.decode(one.body)["messageType"] for one in sent()] == list(messages.MESSAGE_TYPES)
    fields_text = section(MESSAGES, "## The five messages")
    for one in sent():
        kind, body = one.properties["MessageType"], msgspec.json.decode(one.body)
        text = section(MESSAGES, f"### `{kind}`")
        assert set(msgspec.json.decode(block(text, "json"))) == set(body), kind
        assert f"`{kind}-{{" in text, kind
        rows = {name: cells for first, cells in table_rows(fields_text).items() for name in re.findall(r"\w+", first)}
        for name in body:
            assert name in rows, name
            assert rows[name][1] == "all" or f"`{kind}`" in rows[name][1], f"{kind}: {name}"
        for name in one.properties:
            assert f"`{name}`" in MESSAGES, name


def test_messages_page_has_topics_job_result_and_outcomes() -> None:
    for topic in (messages.EVENTS_TOPIC, messages.JOBS_TOPIC, messages.RESULTS_TOPIC):
        assert f"| `{topic}` |" in MESSAGES
    assert f"{messages.PHASE_DUE_MEMBERS_MAX:,}" in MESSAGES
    job, result = (
        msgspec.json.decode(block(section(MESSAGES, heading), "json")) for heading in ("## Job", "## Result")
    )
    assert set(job) == set(FIELDS)
    worker = FunctionWorker("vpn")
    worker.function("F", quick=True)(lambda: {"complete": True})
    answered = asyncio.run(worker.call("F"))
    assert set(result) == set(answered)
    assert set(result["correlationData"]) == set(job["correlationData"])
    for name in {*job, *job["correlationData"], *result, *messages.WorkerError.__struct_fields__}:
        assert f"`{name}`" in MESSAGES, name
    for kind in KINDS:
        assert f"`{kind}`" in section(MESSAGES, "## Job")
    rows = table_rows(section(MESSAGES, "## Result"))
    assert {name for name in rows if name.isupper()} == set(Outcome)
    assert messages.read_result(result).is_success


# --- Tables and states -----------------------------------------------------------------------------------------------


def created() -> dict[str, set[str]]:
    """Each table of runbooks, and its columns."""
    found = {}
    for statement in (
        *RUNBOOK_TABLES,
        *TOKENS_AND_ABSENCES,
        *RUNBOOK_HANDLED,
        *DECISIONS,
        *MOVED_DATES,
        *RUNBOOK_TENANTS,
        *RUNBOOK_WAITS,
        *BATCH_PAUSES,
        *STEP_COUNTS,
    ):
        if (added := re.match(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", statement)) is not None and added[1] in found:
            found[added[1]].add(added[2])
        table = re.match(r"CREATE TABLE (\w+) \((.*)\)", statement, re.DOTALL)
        if table is not None:
            parts = re.sub(r"\([^()]*\)", "", table[2]).split(",")
            names = {part.split()[0] for part in parts}
            found[table[1]] = names - {"UNIQUE", "PRIMARY"}
    return found


STEP_COLUMNS = created()["step_executions"] - {"id", "phase_execution_id", "batch_member_id", "catching_up"}


@pytest.mark.parametrize("table", created())
def test_tables_page_has_every_column(table: str) -> None:
    columns = created()[table]
    assert len(columns) >= 3
    if f"| `{table}` |" in TABLES:
        text = " ".join(table_rows(TABLES)[table])
    else:
        text = section(TABLES, f"## `{table}`")
    named = set(re.findall(r"`(\w+)`", text))
    if table in ("init_executions", "followup_executions"):
        assert "columns of `step_executions` from `step_name` on" in " ".join(text.split())
        columns = columns - STEP_COLUMNS
    assert columns <= named, columns - named


def test_tables_page_has_no_column_that_is_none() -> None:
    for table, columns in created().items():
        if f"| `{table}` |" in TABLES:
            continue
        for first in table_rows(section(TABLES, f"## `{table}`")):
            for name in re.findall(r"[a-z_]+", first if first not in ("column", "---") else ""):
                assert name in columns, f"{table}: {name}"


def test_tables_page_has_the_columns_of_data_tables() -> None:
    text = section(TABLES, "## Data tables")
    for name in (*SYSTEM_COLUMNS, "_row_id"):
        assert f"`{name}`" in text, name


@pytest.fixture
def draw_states() -> ModuleType:
    return load(DOCS / "draw_states.py", "draw_states_of_runbooks")


def test_runbook_diagrams_are_as_the_tables_draw_them(draw_states: ModuleType) -> None:
    assert draw_states.drawn(TABLES, draw_states.runbook_parts()) == TABLES, "run 'make diagrams'"


@pytest.mark.parametrize(
    ("heading", "ways", "retried"),
    [
        ("### Step", STEP, RETRIED),
        ("### Batch", BATCH, BATCH_RETRIED),
        ("### Phase", PHASE, {}),
        ("### Member", MEMBER, {}),
    ],
)
def test_tables_page_says_what_every_state_means_and_draws_every_way(heading: str, ways: Any, retried: Any) -> None:
    text = section(TABLES, heading)
    for state, targets in ways.items():
        assert re.search(rf"^\| `{state}` \| \S", text.split("<!--")[0], re.MULTILINE), state
        for target in targets:
            assert f"    {state} --> {target}\n" in text
        for target in retried.get(state, ()):
            assert f"    {state} --> {target}: retry\n" in text
    drawn = re.findall(r"^    (\w+) --> (\w+)", text, re.MULTILINE)
    known = sum(len(targets) for machine in (ways, retried) for targets in machine.values())
    assert len(drawn) == known


# --- The trail -------------------------------------------------------------------------------------------------------


def event_kinds() -> set[str]:
    """Every kind that the source of runbooks writes to the trail."""
    found: set[str] = set()
    for path in RUNBOOKS.rglob("*.py"):
        for node in ast.walk(ast.parse(read(path))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", "")
            place = {"note": 0, "entry": 1}.get(called)
            if place is not None and len(node.args) > place:
                found |= {text.value for text in ast.walk(node.args[place]) if isinstance(text, ast.Constant)}
    return found


def test_operating_page_has_every_event() -> None:
    text = section(OPERATE, "## The audit trail")
    named = set(re.findall(r"`([a-z]+-[a-z-]+)`", text))
    kinds = {kind for kind in event_kinds() if re.fullmatch(r"[a-z]+-[a-z-]*[a-z]", kind)}
    assert len(kinds) > 20
    assert kinds <= named, kinds - named
    # The rest is put together: `rollback-started`, `removal-done`, `source-held` and the like.
    made = {f"{kind}-{end}" for kind in ("rollback", "removal") for end in ("started", "done", "failed")}
    assert named == kinds | made | {"source-ok", "source-failed", "source-held"}


# --- Workers ---------------------------------------------------------------------------------------------------------


def test_worker_page_has_every_setting_with_its_default() -> None:
    rows = table_rows(section(WORKER, "### Settings"))
    variables = {one.metadata["name"]: one.default for one in fields(WorkerSettings) if one.metadata.get("name")}
    assert {name for name in rows if name.startswith("LUCIUS_")} == set(variables)
    for name, default in variables.items():
        shown = f"`{default:g}`" if isinstance(default, int | float) else f"`{default}`" if default else "empty"
        assert rows[name][1] == shown, name
    settings = read(REFERENCE / "settings.md")
    for name in variables:
        assert f"`{name}`" in settings, name


def test_worker_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, trial = (block(WORKER, "python", number) for number in (0, 1))
    (tmp_path / "functions.py").write_text(worker, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(trial, "trial", "exec"), {})
    assert worker.count("@worker.function(") == 2


async def test_worker_of_the_runbook_page_has_every_function_that_the_runbook_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "vpn_functions.py"
    path.write_text(block(WRITE, "python"), "utf-8")
    worker = load(path, "vpn_functions").worker
    runbook = read_runbook(EXAMPLE.encode())
    assert {step.worker_id for step in runbook.steps} == {worker.worker_id}
    assert {step.function for step in runbook.steps} == set(worker.functions)
    for step in runbook.steps:
        values: dict[str, Any] = {name: ["staff"] if name == "Groups" else "x" for name in step.params}
        answered = await worker.call(step.function, values)
        assert answered["status"] == "Success", answered["error"]
        if step.poll is not None:
            assert answered["result"]["complete"] is False


def test_the_json_of_the_worker_page_is_what_the_calls_take() -> None:
    results = re.findall(r"^  (\{\"jobId\".*\})\]\}'$", WORKER, re.MULTILINE)
    assert len(results) == 4
    for text in results:
        messages.read_result(msgspec.json.decode(text))
    (job, outcome) = [msgspec.json.decode(content) for language, content in blocks(WORKER) if language == "json"]
    assert set(job["jobs"][0]) == set(FIELDS)
    assert outcome["outcomes"][0]["outcome"] in set(Outcome)
