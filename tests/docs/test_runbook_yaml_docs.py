"""The page on runbooks' YAML: every key, limit and fault, as the code has them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, REFERENCE, blocks, read, section, table_rows

from lucius.runbooks.core.definition import durations
from lucius.runbooks.core.definition.checks import PARAMS_BYTES_MAX
from lucius.runbooks.core.definition.model import DataSource, Runbook
from lucius.runbooks.core.definition.reading import FAULTS_MAX, RunbookInvalid, read_runbook
from lucius.runbooks.core.definition.schema import runbook_schema
from lucius.runbooks.core.definition.templates import SPECIALS
from lucius.runbooks.sources.csv_text import read_csv
from lucius.runbooks.sources.deadline import Stop
from lucius.runbooks.sources.limits import SourceError, SourceLimits, too_many_rows
from lucius.runbooks.sources.reading import read_source
from lucius.yaml_text import BYTES_MAX, DEPTH_MAX

YAML = read(REFERENCE / "runbook-yaml.md")
WRITE = read(DOCS / "how-to" / "write-a-runbook.md")


def block(page: str, language: str, number: int = 0) -> str:
    return [content for found, content in blocks(page) if found == language][number]


EXAMPLE = block(WRITE, "yaml")


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
        "## `notifications`": schema["properties"]["notifications"]["properties"],
        "### Recipient": definitions["recipient"]["properties"],
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
    "approval": ("    offset: T-0\n", "    offset: T-0\n    approval: {until: T-1h}\n"),
    "time zone": ("phases:", "time_zone: Berlin\nphases:"),
    "hours": ("phases:", "windows: [{days: [sat]}, {from: 10:00, to: 10:00}]\nphases:"),
    "dates": ("phases:", "freeze: [2026-12-24, {from: 2026-12-31, to: 2026-12-27}]\nphases:"),
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
