"""What the pages about runbooks say is what the code has: keys, messages, tables, states, settings, events, errors."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from pages import DOCS, REFERENCE, ROOT, blocks, read, section, table_rows

from lucius.functions import FunctionWorker, WorkerSettings
from lucius.functions.job import FIELDS
from lucius.runbooks import messages
from lucius.runbooks.definition import durations
from lucius.runbooks.definition.checks import PARAMS_BYTES_MAX
from lucius.runbooks.definition.model import DataSource, Runbook
from lucius.runbooks.definition.reading import FAULTS_MAX, RunbookInvalid, read_runbook
from lucius.runbooks.definition.schema import runbook_schema
from lucius.runbooks.definition.templates import SPECIALS
from lucius.runbooks.execution import KINDS
from lucius.runbooks.orchestrator.facts import Outcome
from lucius.runbooks.sources.csv_text import read_csv
from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.limits import SourceError, SourceLimits, too_many_rows
from lucius.runbooks.sources.reading import read_source
from lucius.runbooks.states import BATCH, BATCH_RETRIED, MEMBER, PHASE, RETRIED, STEP
from lucius.runbooks.tables.data_tables import SYSTEM_COLUMNS
from lucius.sql.runbook_tables import RUNBOOK_TABLES
from lucius.yaml_text import BYTES_MAX, DEPTH_MAX

YAML = read(REFERENCE / "runbook-yaml.md")
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


# --- The YAML --------------------------------------------------------------------------------------------------------


def schema_objects() -> dict[str, dict[str, Any]]:
    """The page's heading of each mapping that the schema knows, and its properties."""
    schema = runbook_schema()
    source, definitions = schema["properties"]["data_source"], schema["$defs"]
    step = definitions["step"]["properties"]
    return {
        "## The runbook": schema["properties"],
        "## `data_source`": source["properties"] | source["properties"]["multi_valued_columns"]["items"]["properties"],
        "## Phase": schema["properties"]["phases"]["items"]["properties"],
        "## Step": step,
        "### `poll`": step["poll"]["properties"],
        "### `retry`": definitions["retry"]["properties"],
    }


@pytest.mark.parametrize("heading", schema_objects())
def test_yaml_page_has_every_key_of_the_schema_and_no_other(heading: str) -> None:
    keys = {key for key in table_rows(section(YAML, heading)) if re.fullmatch(r"[a-z_]+", key)}
    assert keys - {"key"} == set(schema_objects()[heading])


def test_yaml_page_has_the_words_of_every_enumeration() -> None:
    for properties in schema_objects().values():
        for key, value in properties.items():
            for word in value.get("enum", []) + ([value["const"]] if "const" in value else []):
                assert f"`{word}`" in YAML, f"{key}: {word}"


def limits_of(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key in ("maxLength", "maximum", "maxItems", "maxProperties"):
                yield member
            yield from limits_of(member)
    elif isinstance(value, list):
        for item in value:
            yield from limits_of(item)


def test_yaml_page_has_every_limit() -> None:
    source = SourceLimits()
    other = [BYTES_MAX, DEPTH_MAX, FAULTS_MAX, PARAMS_BYTES_MAX, durations.DURATION_SECONDS_MAX // 86_400]
    other += [source.rows_max, source.columns_max, source.cell_chars_max, source.result_chars_max]
    for limit in {*limits_of(runbook_schema()), *other, source.file_bytes_max, int(source.query_seconds)}:
        assert f"{limit:,}" in YAML, limit
    for special in SPECIALS:
        assert f"| `{{{{{special}}}}}` |" in YAML


def test_the_example_is_a_runbook_and_shows_what_validate_says() -> None:
    runbook = read_runbook(EXAMPLE.encode())
    told = block(WRITE, "text")
    assert runbook.name in told
    for phase in runbook.phases:
        steps = ", ".join(step.name for step in phase.steps)
        assert f"{durations.show_offset(phase.offset_minutes)}  {phase.name}: {steps}" in re.sub(r" {3,}", "  ", told)
    columns = block(WRITE, "csv").splitlines()[0].split(",")
    assert isinstance(read_runbook(EXAMPLE.encode(), columns), Runbook)


# --- Faults ----------------------------------------------------------------------------------------------------------

INIT = 'init:\n  - {name: i, worker_id: vpn, function: F, params: {a: "{{Login}}"}}\nphases:'
QUERY = "query: SELECT 1; DROP TABLE members\n  primary_key: Login"
BROKEN = {
    "twice": ("offset: T+1d", "offset: T+1d\n    offset: T+2d"),
    "unknown key": ("retry: {max", "retrys: {max"),
    "missing": ("    offset: T-0\n", ""),
    "same name": ("name: roll-out", "name: make-profile"),
    "no rollback": ("on_failure: undo", "on_failure: undoo"),
    "offset": ("T+1d", "T+400d"),
    "connection": ("LUCIUS_SOURCE_STAFF ", "postgresql://user:secret@host/db "),
    "two statements": ("primary_key: Login", QUERY),
    "unknown variable": ('"{{ProfileId}}"', '"{{_profile}}"'),
    "init": ("phases:", INIT),
    "rollback of a rollback": (
        "    - name: drop-profile\n      worker_id: vpn\n",
        "    - name: drop-profile\n      on_failure: undo\n      worker_id: vpn\n",
    ),
}
HOSTILE = {
    "alias": "a: &x [1]\nb: [*x, *x]\n",
    "depth": "[" * 40 + "]" * 40,
    "size": "name: " + "x" * 300_000,
    "tag": "name: !!python/object/apply:os.system ['true']\n",
    "merge": "name: demo\n<<: {description: x}\n",
    "name": EXAMPLE.replace("name: vpn-rollout", "name: 'x\"; DROP TABLE runbooks'"),
    "expression": EXAMPLE.replace('"{{ProfileId}}"', '"{{1+1}}"'),
    "half a template": EXAMPLE.replace('"{{ProfileId}}"', '"{{ProfileId"'),
}


def told(error: str) -> str:
    """The page names the fault as it is told, but for the line, which moves whenever the example does."""
    return re.sub(r"^line \d+: ", "", error)


def shown_faults(page: str) -> list[str]:
    return [told(found) for found in re.findall(r"`(line \d+: [^\n]+)` \|", page)]


@pytest.mark.parametrize("broken", BROKEN)
def test_yaml_page_shows_the_fault_as_it_is_told(broken: str) -> None:
    before, after = BROKEN[broken]
    assert before in EXAMPLE
    text = EXAMPLE.replace(before, after)
    with pytest.raises(RunbookInvalid) as caught:
        read_runbook((text.replace("type: csv ", "type: sql ") if broken == "two statements" else text).encode())
    assert told(str(caught.value.faults[0])) in shown_faults(section(YAML, "## What publication checks"))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_yaml_page_shows_the_fault_of_a_hostile_text(hostile: str) -> None:
    with pytest.raises(RunbookInvalid) as caught:
        read_runbook(HOSTILE[hostile].encode())
    assert told(str(caught.value.faults[0])) in shown_faults(YAML)


@pytest.mark.parametrize(
    "csv", ["Login,Name\nann,=1+1\n", "Login,Name\nann\n", "Login,\nann,b\n", 'Login,"a""b"\nx,y\n']
)
def test_yaml_page_shows_the_fault_of_a_csv(csv: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_csv(csv, SourceLimits())
    assert caught.value.faults[0] in section(YAML, "## What is refused of CSV")


def test_every_fault_that_the_yaml_page_shows_is_tried_here() -> None:
    assert len(shown_faults(YAML)) == len(BROKEN) + len(HOSTILE) + 4


async def test_yaml_page_shows_the_fault_of_a_source(tmp_path: Path) -> None:
    members = tmp_path / "members.db"
    with sqlite3.connect(members) as connection:
        connection.execute("CREATE TABLE members (Login TEXT)")
    connection.close()
    address, own = f"sqlite:///{members}", (members,)
    told = [str(Stop(SourceLimits().query_seconds).error()), str(too_many_rows(SourceLimits().rows_max))]
    for query, value, own_files in (
        ("WITH x AS (SELECT 1) DELETE FROM members", address, ()),
        ("SELECT 1", "", ()),
        ("SELECT 1", address, own),
    ):
        source = DataSource(type="sql", connection="LUCIUS_SOURCE_STAFF", query=query, primary_key="Login")
        with pytest.raises(SourceError) as caught:
            await read_source(source, {"LUCIUS_SOURCE_STAFF": value}, SourceLimits(), own_files)
        told.append(str(caught.value))
    text = section(YAML, "### What keeps a source harmless")
    for one in told:
        assert f"| `{one}` |" in text


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
    for statement in RUNBOOK_TABLES:
        table = re.match(r"CREATE TABLE (\w+) \((.*)\)", statement, re.DOTALL)
        if table is not None:
            parts = re.sub(r"\([^()]*\)", "", table[2]).split(",")
            names = {part.split()[0] for part in parts}
            found[table[1]] = names - {"UNIQUE"}
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
