"""Reading: what a right text gives, and that anything else gives faults and nothing but faults."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import yaml
from definition_samples import BY_HAND, COLUMNS, FROM_A_FILE, MIGRATION, STEP, VALID, broken, faults_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucius.runbooks.core.definition.model import DataSource, FailureLimit, MultiValued, Poll, Retry
from lucius.runbooks.core.definition.names import data_table_name
from lucius.runbooks.core.definition.reading import FAULTS_MAX, read_runbook
from lucius.runbooks.core.definition.templates import resolve, variables_in
from lucius.runbooks.core.definition.variables import known_outputs

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
SPECIALS = {"_batch_id": 1, "_batch_start_time": "2025-03-15T00:00:00Z"}


@pytest.mark.parametrize("columns", [None, COLUMNS])
def test_migration_is_read_whole(columns: tuple[str, ...] | None) -> None:
    runbook = read_runbook(MIGRATION.encode(), columns)
    assert runbook.name == "contoso-mailbox-migration"
    assert runbook.source == DataSource(
        type="sql",
        connection="LUCIUS_SOURCE_HR",
        query="SELECT UserPrincipalName, MigrationDate, Aliases, Target FROM moves",
        primary_key="UserPrincipalName",
        batch_time_column="MigrationDate",
        multi_valued=(MultiValued("Aliases", "semicolon_delimited"),),
        absence_seconds=600,
    )
    assert (runbook.primary_key, runbook.max_parallel) == ("UserPrincipalName", 500)
    assert (runbook.max_failures, runbook.progression) == (FailureLimit(percent=5.0), "barrier")
    assert [(phase.name, phase.offset_minutes) for phase in runbook.phases] == [
        ("pre-notification", 7_200),
        ("cutover", 0),
    ]
    move, verify = runbook.phase("cutover").steps
    assert (move.timeout_seconds, verify.timeout_seconds) == (7_200, 3_600)
    assert (move.poll, verify.poll) == (Poll(900, 86_400), None)
    assert (move.on_failure, move.output_params) == ("undo", {"MoveId": "move.id"})
    assert [step.name for step in runbook.rollbacks["undo"]] == ["stop", "tell"]
    assert [step.name for step in runbook.init] == ["open-window", "announce"]
    assert [step.name for step in runbook.on_member_removed] == ["cancel-move"]


def test_top_retry_is_every_steps_that_has_none_of_its_own() -> None:
    runbook = read_runbook(MIGRATION.encode())
    own = {step.name: step.retry for step in runbook.steps if step.retry != Retry(2, 60)}
    assert own == {"move": Retry(5, 30)}
    without = read_runbook(broken("retry: {max_retries: 2, interval: 1m}\n", "").encode())
    assert without.phase("cutover").steps[1].retry == Retry(0, 60)
    text = broken("retry: {max_retries: 5, interval: 30s}", "retry: {max_retries: 5}").replace(
        "interval: 1m", "interval: 9m"
    )
    assert read_runbook(text.encode()).phase("cutover").steps[0].retry == Retry(5, 60), (
        "a step's own replaces all of it"
    )


def test_manual_source_is_none() -> None:
    runbook = read_runbook(BY_HAND.encode())
    assert (runbook.source, runbook.primary_key) == (None, "Key")
    assert runbook.max_failures == FailureLimit(count=10)
    assert (runbook.phases[0].offset_minutes, runbook.max_parallel) == (-120, None)


def test_phases_of_one_moment_keep_the_order_of_the_text() -> None:
    runbook = read_runbook(FROM_A_FILE.encode())
    assert [phase.name for phase in runbook.phases] == ["sooner", "later", "as later"]
    assert runbook.source is not None
    assert (runbook.source.type, runbook.source.batch_time_column) == ("csv", None)


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("0", FailureLimit(count=0)),
        ("0%", FailureLimit(percent=0.0)),
        ("2.5%", FailureLimit(percent=2.5)),
        ("100%", FailureLimit(percent=100.0)),
    ],
)
def test_failure_limit_is_a_number_or_a_share(written: str, limit: FailureLimit) -> None:
    assert read_runbook(broken("max_failures: 5%", f"max_failures: {written}").encode()).max_failures == limit


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("select 1", "select 1"),
        ("'SELECT 1 ;  '", "SELECT 1"),
        ("|\n    -- who moves\n    /* and\n    when */ WITH a AS (SELECT 1) SELECT * FROM a;\n", None),
        ("SELECT '{{Key}}'", "SELECT '{{Key}}'"),
    ],
)
def test_query_that_reads_is_kept_without_its_last_semicolon(written: str, kept: str | None) -> None:
    text = broken("SELECT UserPrincipalName, MigrationDate, Aliases, Target FROM moves", written)
    source = read_runbook(text.encode()).source
    assert source is not None
    assert source.query == kept if kept else source.query.endswith("FROM a")


def test_all_faults_come_at_once_in_the_order_of_the_lines() -> None:
    text = MIGRATION
    for old, new in [
        ("name: contoso-mailbox-migration", "name: 1"),
        ("on_failure: undo", "on_failure: undue"),
        ("type: sql", "type: sqlite"),
        ("Stop\n", "Stop {{\n"),
        ("description:", "descripton:"),
        ("interval: 15m", "interval: 25h"),
    ]:
        text = broken(old, new, text)
    faults = faults_of(text)
    lines = text.split("\n")
    found = [(lines[fault.line - 1].strip().split(":")[0], fault.pointer) for fault in faults]
    assert found == [
        ("name", "/name"),
        ("descripton", "/descripton"),
        ("type", "/data_source/type"),
        ("on_failure", "/phases/0/steps/0/on_failure"),
        ("interval", "/phases/0/steps/0/poll/interval"),
        ("function", "/rollbacks/undo/0/function"),
    ]
    assert str(faults[1]) == "line 2: descripton: unknown key; did you mean description?"
    assert str(faults[3]).endswith(
        "phase cutover / step move / on_failure: unknown rollback 'undue'; did you mean undo?"
    )


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"", 1, "a mapping"),
        (b"- a", 1, "a mapping"),
        (b"a: 1\nb: [", 2, ""),
        (b"a: 1\nb: &x 1\nc: *x", 2, "anchors"),
        (b"a: 1\nb: !!python/object:os.system {}", 2, "tag"),
        (b"a: 1\na: 2", 2, "duplicate key 'a'"),
        (b"a: 1\nb: " + b"[" * 40 + b"]" * 40, 2, "deep"),
        (b"a: 1\nb: \xff", 2, "UTF-8"),
        (b"a: " + b"x" * 300_000, 1, "262144"),
        (b"a: 1\n---\nb: 2", 2, "document"),
        (b"a: {\n  <<: {b: 1}}", 2, "merge"),
    ],
)
def test_text_that_is_no_plain_yaml_is_refused_on_its_line(content: bytes, line: int, words: str) -> None:
    (fault,) = faults_of(content)
    assert (fault.line, fault.pointer) == (line, "")
    assert words in fault.message


def test_secret_in_the_connection_is_not_repeated() -> None:
    for secret in ("postgresql://sa:hunter2@db/hr", "hunter2", "Hunter2\\e"):
        faults = faults_of(broken("LUCIUS_SOURCE_HR", f'"{secret}"' if "\\" not in secret else f"'{secret}'"))
        assert [fault.pointer for fault in faults] == ["/data_source/connection"]
        assert "environment variable" in faults[0].message
        assert "unter2" not in str(faults[0])


def test_faults_have_a_limit_and_are_found_in_bounded_time() -> None:
    places = ", ".join(f'"{{{{Colum{number}}}}}"' for number in range(2_000))
    text = broken("params: {To: [", f"params: {{Many: [{places}], To: [")
    columns = (*COLUMNS, *(f"Column{number:03}" for number in range(400)))
    started = time.process_time()
    faults = faults_of(text, columns)
    assert time.process_time() - started < 10
    assert len(faults) == FAULTS_MAX + 1
    assert "more faults" in faults[-1].message


def test_every_variable_of_a_runbook_that_was_published_resolves() -> None:
    """What reading lets pass, `known_outputs` and a row of the source can fill: the two say the same."""
    runbook = read_runbook(MIGRATION.encode(), COLUMNS)
    row = dict.fromkeys(COLUMNS, "x")
    lists: list[tuple[Any, str | None, Any, dict[str, str]]] = [("init", None, runbook.init, {})]
    lists += [("step", phase.name, phase.steps, row) for phase in runbook.phases]
    lists += [("rollback", name, steps, row) for name, steps in runbook.rollbacks.items()]
    lists += [("removal", None, runbook.on_member_removed, row)]
    resolved = 0
    for kind, name, steps, known in lists:
        for index, step in enumerate(steps):
            outputs = known_outputs(runbook, kind, name, index)
            resolve(step, known, SPECIALS, outputs)
            resolved += len(variables_in(step))
    assert resolved == 13
    assert known_outputs(runbook, "step", "pre-notification", 0) == frozenset()
    assert known_outputs(runbook, "step", "cutover", 1) == {"TicketId", "MoveId"}
    assert known_outputs(runbook, "rollback", "undo", 1) == {"TicketId", "MoveId", "Stopped"}
    assert known_outputs(runbook, "init", None, 0) == frozenset()


@UNTIMED
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_faults(content: bytes) -> None:
    assert faults_of(content)


_words = st.sampled_from(["name", "{{Key}}", "{{", "15m", "T-5d", "sql", "undo", "é", "\u2028", "", "LUCIUS_SOURCE_A"])
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | _words | st.text(max_size=5)
_KEYS = """name description data_source type connection query primary_key batch_time phases steps offset init retry
interval max_retries poll timeout rollbacks on_failure params output_params worker_id function max_failures 0"""
_keys = st.sampled_from(_KEYS.split())
_documents = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys | _words, inner, max_size=4),
    max_leaves=20,
)


@UNTIMED
@given(st.dictionaries(_keys, _documents, max_size=6))
def test_arbitrary_documents_are_refused_with_faults(document: dict[str, Any]) -> None:
    assert faults_of(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [
        *([place] if place else []),
        *(found for key, member in members for found in _places(member, (*place, key))),
    ]


@UNTIMED
@given(st.data())
def test_sample_with_anything_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands at a place of a right runbook, the end is a runbook, or faults on lines that exist."""
    document = yaml.safe_load(data.draw(st.sampled_from([*VALID.values()])))
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(_places(document)))
        holder = document
        for key in way:
            holder = holder[key]
        holder[last] = data.draw(_documents)
    text = yaml.safe_dump(document, allow_unicode=True)
    faults = faults_of(text.encode("utf-8", "surrogatepass"), data.draw(st.sampled_from([None, COLUMNS, ("Key",)])))
    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
    assert all(1 <= fault.line <= len(lines) for fault in faults)
    assert list(faults) == sorted(faults, key=lambda fault: fault.line)
    if not faults:
        runbook = read_runbook(text.encode())
        assert data_table_name(runbook.name, 1)
        for step in runbook.steps:
            variables_in(step)


@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(line_end: str) -> None:
    text = broken("on_failure: undo", "on_failure: undue")
    (expected,) = faults_of(text)
    assert faults_of(text.replace("\n", line_end)) == (expected,)
    (fault,) = faults_of(f"a: 1{line_end}b: [")
    assert fault.line == 2


def test_control_characters_and_numbers_without_end_are_refused() -> None:
    for value in (r'"a\0b"', r'"a\eb"', ".nan", "1e999", r'"\uD800"'):
        (fault,) = faults_of(broken("N: 1", f"N: {value}"))
        assert fault.line == MIGRATION[: MIGRATION.index("N: 1")].count("\n") + 1
    (fault,) = faults_of(broken("N: 1", r'"a\0": 1'))
    assert "control character" in fault.message


def test_limits_hold_at_their_edges() -> None:
    def phases(count: int, steps: int = 1) -> str:
        listed = "".join(f"      - {STEP.replace('name: s', f'name: s{index}')}\n" for index in range(steps))
        return "".join(f"  - name: p{index}\n    offset: T-0\n    steps:\n{listed}" for index in range(count))

    head = BY_HAND.partition("phases:")[0] + "phases:\n"
    assert faults_of(head + phases(200)) == ()
    assert [fault.pointer for fault in faults_of(head + phases(201))] == ["/phases"]
    assert faults_of(head + phases(1, 100)) == ()
    assert [fault.pointer for fault in faults_of(head + phases(1, 101))] == ["/phases/0/steps"]
