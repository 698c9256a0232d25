"""Every rule of a runbook, broken once: the fault stands on the line marked `#!`, and says what is wrong."""

from __future__ import annotations

import pytest
from definition_samples import BY_HAND, COLUMNS, FROM_A_FILE, MIGRATION, STEP, broken, faults_of, marked_lines

from lucius.runbooks.core.definition.query import query_fault
from lucius.runbooks.core.definition.reading import RunbookInvalid, read_runbook
from lucius.runbooks.core.definition.schema import shape_faults
from lucius.yaml_text import read_yaml

QUERY = "query: SELECT UserPrincipalName, MigrationDate, Aliases, Target FROM moves"
MANY = ", ".join(f"V{number}: f" for number in range(51))

# What is replaced, by what, and words of the fault. These the schema refuses as well.
SHAPE = [
    ("unknown key at the top", "progression: barrier", "progresion: barrier  #!", "did you mean progression?"),
    ("unknown key of the source", "  type: sql", "  type: sql\n  typ: sql  #!", "did you mean type?"),
    ("unknown key of a phase", "    offset: T-5d", "    offset: T-5d\n    offsets: T-5d  #!", "did you mean offset?"),
    ("unknown key of a step", "        timeout: 2h", "        time_out: 2h  #!", "did you mean timeout?"),
    ("unknown key of a poll", "          timeout: 24h", "          timeout: 24h\n          zzz: 1  #!", "interval"),
    ("unknown key of a retry", "{max_retries: 5, interval: 30s}", "{max_retries: 5, wait: 30s}  #!", "max_retries"),
    ("unknown key of a column", "format: semicolon_delimited}", "format: json_array, x: 1}  #!", "format"),
    ("name missing", "name: contoso-mailbox-migration\n", "", "missing"),
    ("name with a stray character", "name: contoso-mailbox-migration", "name: contoso/x  #!", "begins with a letter"),
    ("name with a digit first", "name: contoso-mailbox-migration", "name: 1a  #!", "begins with a letter"),
    ("name too long", "name: contoso-mailbox-migration", f"name: {'a' * 41}  #!", "1 to 40"),
    ("name is a number", "name: contoso-mailbox-migration", "name: 5  #!", "begins with a letter"),
    ("description is a list", "description: Moves mailboxes.", "description: [a]  #!", "must be text"),
    ("description without a value", "description: Moves mailboxes.", "description:  #!", "no value"),
    ("source is no mapping", "data_source:\n  type: sql\n", "data_source: sql  #!\nx:\n", "must be a mapping"),
    ("type unknown", "type: sql", "type: oracle  #!", "one of sql, csv, manual"),
    ("primary key missing", "data_source:\n", "data_source:  #!\n", "missing"),
    ("connection is a URL", "connection: LUCIUS_SOURCE_HR", "connection: mysql://a:b@c  #!", "environment variable"),
    ("connection of another kind", "LUCIUS_SOURCE_HR", "LUCIUS_API_KEYS  #!", "environment variable"),
    ("connection in lower case", "LUCIUS_SOURCE_HR", "LUCIUS_SOURCE_hr  #!", "environment variable"),
    ("connection of nothing", "LUCIUS_SOURCE_HR", "LUCIUS_SOURCE_  #!", "environment variable"),
    ("query too long", "FROM moves", f"FROM moves -- {'x' * 20_000}  #!", "20000"),
    ("batch time unknown", "  batch_time_column: MigrationDate", "  batch_time: daily  #!", "immediate"),
    ("format unknown", "format: semicolon_delimited}", "format: tabs}  #!", "json_array"),
    ("column without a format", "{name: Aliases, format: semicolon_delimited}", "{name: Aliases}  #!", "missing"),
    ("progression unknown", "progression: barrier", "progression: fast  #!", "barrier, independent"),
    ("max_parallel is zero", "max_parallel: 500", "max_parallel: 0  #!", "from 1 to 100000"),
    ("max_parallel too large", "max_parallel: 500", "max_parallel: 100001  #!", "from 1 to 100000"),
    ("max_parallel is text", "max_parallel: 500", "max_parallel: many  #!", "a whole number"),
    ("max_parallel is a fraction", "max_parallel: 500", "max_parallel: 1.5  #!", "a whole number"),
    ("max_failures below zero", "max_failures: 5%", "max_failures: -1  #!", "0% to 100%"),
    ("max_failures above all", "max_failures: 5%", "max_failures: 101%  #!", "0% to 100%"),
    ("max_failures just above all", "max_failures: 5%", "max_failures: 100.1%  #!", "0% to 100%"),
    ("max_failures is a fraction", "max_failures: 5%", "max_failures: 1.5  #!", "0% to 100%"),
    ("max_failures is true", "max_failures: 5%", "max_failures: true  #!", "0% to 100%"),
    ("too many retries", "max_retries: 2,", "max_retries: 21,  #!\n ", "from 0 to 20"),
    ("retries below zero", "max_retries: 2,", "max_retries: -1,  #!\n ", "from 0 to 20"),
    ("retry without a number", "retry: {max_retries: 2, ", "retry: {  #!\n  ", "missing"),
    ("retry interval is not a duration", "interval: 1m}", "interval: 1}  #!", "a duration is"),
    ("offset is not an offset", "offset: T-5d", "offset: 5 days before  #!", "an offset is"),
    ("offset is a number", "offset: T-5d", "offset: 5  #!", "an offset is"),
    ("timeout is not a duration", "timeout: 2h", "timeout: 2 hours  #!", "a duration is"),
    ("absence is not a duration", "absence: 10m", "absence: soon  #!", "a duration is"),
    ("timeout is zero", "timeout: 2h", "timeout: 0s  #!", "a duration is"),
    ("timeout is a number", "timeout: 2h", "timeout: 7200  #!", "a duration is"),
    ("poll without a timeout", "        poll:\n", "        poll:  #!\n", "missing"),
    ("poll interval is not a duration", "interval: 15m", "interval: 15 m  #!", "a duration is"),
    ("phase without an offset", "  - name: pre-notification\n", "  - name: pre-notification  #!\n", "missing"),
    ("phase name with a line break", "name: pre-notification", 'name: "a\\nb"  #!', "one line"),
    ("phase name with a space first", "name: pre-notification", 'name: " a"  #!', "leading or trailing"),
    (
        "step without a worker",
        "      - name: notify\n        worker_id: mail.eu\n",
        "      - name: notify  #!\n",
        "missing",
    ),
    (
        "worker is a template",
        "name: notify\n        worker_id: mail.eu",
        'name: notify\n        worker_id: "{{W}}"  #!',
        "no template",
    ),
    (
        "worker id too long",
        "name: notify\n        worker_id: mail.eu",
        f"name: notify\n        worker_id: {'w' * 65}  #!",
        "1 to 64",
    ),
    ("function is empty", "function: Send-Mail", 'function: ""  #!', "must not be empty"),
    ("function too long", "function: Send-Mail", f"function: {'f' * 257}  #!", "256"),
    ("params is a list", 'params: {At: "{{Stopped}}"}', "params: [a]  #!", "must be a mapping"),
    ("param without a name", 'params: {At: "{{Stopped}}"}', 'params: {"": 1}  #!', "1 to 128"),
    ("too many outputs", "{TicketId: ticket}", f"{{{MANY}, TicketId: t}}  #!", "at most 50"),
    ("output is special", "{TicketId: ticket}", "{_batch_id: a, TicketId: t}  #!", "begins with a letter"),
    ("output begins with _", "{TicketId: ticket}", "{_Ticket: a, TicketId: t}  #!", "begins with a letter"),
    ("output field with empty parts", "{MoveId: move.id}", "{MoveId: move..id}  #!", "dots for nested"),
    (
        "on_failure in a rollback",
        "      function: Stop\n",
        "      function: Stop\n      on_failure: undo  #!\n",
        "cannot have on_failure",
    ),
    (
        "on_failure in a removal",
        "    function: Cancel\n",
        "    function: Cancel\n    on_failure: undo  #!\n",
        "cannot have on_failure",
    ),
    ("rollback is no list", "rollbacks:\n", "rollbacks:\n  more: stop  #!\n", "must be a list"),
    ("rollback without steps", "rollbacks:\n", "rollbacks:\n  more: []  #!\n", "at least 1"),
    ("rollback name with a space first", "rollbacks:\n", f"rollbacks:\n  ' a': [{STEP}]  #!\n", "leading or trailing"),
    (
        "init is a mapping",
        "init:\n  - name: open-window\n",
        "init:  #!\n  x: 1\ny:\n  - name: open-window\n",
        "must be a list",
    ),
    ("step is text", "on_member_removed:\n", "on_member_removed:\n  - Cancel  #!\n", "must be a mapping"),
]

# These only a reader can know.
SENSE = [
    ("phase twice", "name: pre-notification", "name: cutover  #!", "duplicate phase name"),
    ("step twice in a phase", "      - name: verify", "      - name: move  #!", "duplicate step name"),
    ("step twice in a rollback", "    - name: tell", "    - name: stop  #!", "duplicate step name"),
    ("step twice in init", "  - name: announce", "  - name: open-window  #!", "duplicate step name"),
    ("rollback unknown", "on_failure: undo", "on_failure: undoo  #!", "did you mean undo?"),
    ("offset too far", "offset: T-5d", "offset: T-366d  #!", "at most 365d"),
    ("absence too long", "absence: 10m", "absence: 366d  #!", "at most 365d"),
    ("timeout too long", "timeout: 2h", "timeout: 366d  #!", "at most 365d"),
    ("retry interval too long", "interval: 1m}", "interval: 8761h}  #!", "at most 365d"),
    ("step's retry interval too long", "interval: 30s}", "interval: 8761h}  #!", "at most 365d"),
    ("poll interval above its timeout", "interval: 15m", "interval: 25h  #!", "longer than the timeout"),
    ("params too large", "params: {At: ", f"params: {{X: {'x' * 33_000},  #!\n        At: ", "32768"),
    ("query that writes", QUERY, "query: DELETE FROM moves  #!", "begins with SELECT or WITH"),
    ("query of two statements", QUERY, "query: SELECT 1; DROP TABLE moves  #!", "only allowed at the very end"),
    ("query with text after its end", QUERY, "query: SELECT 1; -- done  #!", "only allowed at the very end"),
    ("query that is a comment", QUERY, "query: /* SELECT  #!", "begins with SELECT or WITH"),
    ("key that no table can have", "primary_key: UserPrincipalName", "primary_key: a;b  #!", "rename"),
    (
        "time column that no table can have",
        "batch_time_column: MigrationDate",
        "batch_time_column: _at  #!",
        "begins with _",
    ),
    ("column listed twice", "delimited}", "delimited}\n    - {name: Aliases, format: json_array}  #!", "duplicate"),
    ("key that is a list", "{name: Aliases,", "{name: UserPrincipalName,  #!\n        ", "a single value"),
    ("braces without a partner", "function: Send-Mail", 'function: "Send-{{Mail"  #!', "{{ is unbalanced"),
    ("braces closed only", 'params: {At: "{{Stopped}}"}', 'params: {At: ["x}}"]}  #!', "}} is unbalanced"),
    ("braces around nothing", "function: Send-Mail", 'function: "Send-{{ }}"  #!', "names no variable"),
    ("template in a key", "To: [", '"{{Key}}": 1,  #!\n          To: [', "keys cannot be templates"),
    ("variable that begins with _", "function: Send-Mail", 'function: "{{_batch}}"  #!', "did you mean _batch_id?"),
    ("column in init", "function: Announce", 'function: "{{Target}}"  #!', "init runs once"),
    ("output of a later init step", "function: Open-Window", 'function: "{{WindowId}}"  #!', "init runs once"),
]

# These need the source's columns.
WITH_COLUMNS = [
    ("column unknown", "Start-{{Target}}-Move", "Start-{{Taget}}-Move  #!", "did you mean Target?"),
    ("column in another case", "Start-{{Target}}-Move", "Start-{{target}}-Move  #!", "did you mean Target?"),
    ("key not in the source", "primary_key: UserPrincipalName", "primary_key: UserName  #!", "no column 'UserName'"),
    ("time not in the source", "batch_time_column: MigrationDate", "batch_time_column: Date  #!", "no column 'Date'"),
    ("list not in the source", "{name: Aliases, f", "{name: Alias, f", "did you mean Aliases?"),
    ("output of the same step", "Start-{{Target}}-Move", "Start-{{MoveId}}-Move  #!", "an earlier step"),
    ("output of a later phase", "function: Send-Mail", 'function: "{{MoveId}}"  #!', "an earlier step"),
    ("output of init in a phase", "function: Send-Mail", 'function: "{{WindowId}}"  #!', "an earlier step"),
    ("output of a rollback elsewhere", "function: Cancel", 'function: "{{Stopped}}"  #!', "an earlier step"),
    ("output of a later rollback step", "function: Stop\n", 'function: "{{Stopped}}"  #!\n', "an earlier step"),
]


def _refused(text: str, words: str, columns: tuple[str, ...] | None = None) -> None:
    faults = faults_of(text, columns)
    assert faults, "the text was taken for a runbook"
    assert any(words in fault.message for fault in faults), [str(fault) for fault in faults]
    named = {fault.line for fault in faults if words in fault.message}
    marked = set(marked_lines(text))
    assert not marked or named == marked, [str(fault) for fault in faults]


@pytest.mark.parametrize(("old", "new", "words"), [case[1:] for case in SHAPE], ids=[case[0] for case in SHAPE])
def test_fault_of_shape_is_named_on_its_line(old: str, new: str, words: str) -> None:
    text = broken(old, new)
    if old == "data_source:\n":
        text = broken("  primary_key: UserPrincipalName\n", "", text)
    elif old == "        poll:\n":
        text = broken("          timeout: 24h\n", "", text)
    elif "  - name: pre-notification\n" in old:
        text = broken("    offset: T-5d\n", "", text)
    _refused(text, words)
    assert shape_faults(read_yaml(text.encode()).value), "an editor that has the schema would not see the fault"


@pytest.mark.parametrize(("old", "new", "words"), [case[1:] for case in SENSE], ids=[case[0] for case in SENSE])
def test_fault_of_sense_is_named_on_its_line(old: str, new: str, words: str) -> None:
    text = broken(old, new)
    _refused(text, words)
    assert len(faults_of(text)) == 1, "one mistake is one fault"
    assert not shape_faults(read_yaml(text.encode()).value), "this belongs among the faults of shape"


@pytest.mark.parametrize(
    ("old", "new", "words"), [case[1:] for case in WITH_COLUMNS], ids=[case[0] for case in WITH_COLUMNS]
)
def test_fault_that_the_columns_show_is_named_on_its_line(old: str, new: str, words: str) -> None:
    text = broken(old, new)
    _refused(text, words, COLUMNS)
    assert faults_of(text) == (), "without the columns, any name may be one"


def test_source_that_says_when_twice_or_never_is_refused() -> None:
    for text in (
        broken("  batch_time_column: MigrationDate\n", ""),
        broken("  type: sql", "  type: sql\n  batch_time: immediate"),
    ):
        (fault,) = faults_of(text)
        assert (fault.line, fault.pointer) == (3, "/data_source")
        assert "not both" in fault.message


def test_source_has_what_its_type_asks_for_and_no_more() -> None:
    assert [fault.pointer for fault in faults_of(broken(f"  {QUERY}\n", ""))] == ["/data_source/query"]
    assert [fault.pointer for fault in faults_of(broken("  connection: LUCIUS_SOURCE_HR\n", ""))] == [
        "/data_source/connection"
    ]
    (fault,) = faults_of(broken("  type: csv\n", "  type: csv\n  query: SELECT 1\n", FROM_A_FILE))
    assert (fault.line, "read completely" in fault.message) == (4, True)
    (fault,) = faults_of(broken("type: manual,", "type: manual, connection: LUCIUS_SOURCE_A,", BY_HAND))
    assert (fault.line, "primary_key only" in fault.message) == (2, True)


def test_phases_and_steps_must_be_there() -> None:
    head = MIGRATION.partition("phases:")[0]
    assert [(fault.line, fault.pointer) for fault in faults_of(head)] == [(1, "/phases")]
    (fault,) = faults_of(head + "phases: []\n")
    assert (fault.line, fault.pointer) == (26, "/phases")
    (fault,) = faults_of(head + "phases:\n  - name: a\n    offset: T-0\n    steps: []\n")
    assert (fault.line, fault.pointer) == (29, "/phases/0/steps")


def test_columns_that_no_table_could_hold_are_named_at_the_query() -> None:
    faults = faults_of(MIGRATION, (*COLUMNS, "_row_id", "target", "a;b"))
    assert [fault.line for fault in faults] == [6, 6, 6]
    assert {word for word in ("_row_id", "'target'", "a;b") if any(word in fault.message for fault in faults)} == {
        "_row_id",
        "'target'",
        "a;b",
    }


def test_rollbacks_have_a_limit() -> None:
    more = "".join(f"  r{number}: [{STEP}]\n" for number in range(100))
    (fault,) = faults_of(broken("rollbacks:\n", f"rollbacks:\n{more}"))
    assert (fault.pointer, "at most 100" in fault.message) == ("/rollbacks", True)


def test_every_bad_key_is_named() -> None:
    faults = faults_of(broken("{TicketId: ticket}", "{_a: x, _b: x, TicketId: t}"))
    assert [fault.pointer.rpartition("/")[2] for fault in faults] == ["_a", "_b"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        "UPDATE t SET a = 1",
        "(SELECT 1)",
        "selection",
        "-- SELECT",
        "/* a */ -- b\n DROP",
        ";",
        "SELECT ';' ;;",
        "SELECT 1;;",
        "SELECT ';'",
        "x" * 20_001,
    ],
)
def test_query_that_is_more_or_other_than_one_that_reads_is_refused(query: str) -> None:
    assert query_fault(query)


def test_a_rollback_that_init_names_may_not_ask_for_a_member() -> None:
    text = b"""name: x
data_source: {type: manual, primary_key: Upn}
init:
  - {name: a, worker_id: w, function: F, on_failure: undo, output_params: {Id: id}}
phases:
  - {name: p, offset: T-0, steps: [{name: s, worker_id: w, function: G}]}
rollbacks:
  undo:
    - {name: u, worker_id: w, function: U, params: {A: "{{Id}}", B: "{{Upn}}"}}
"""
    with pytest.raises(RunbookInvalid) as refused:
        read_runbook(text)
    assert [(fault.line, "init has no member" in fault.message) for fault in refused.value.faults] == [(9, True)]
    read_runbook(text.replace(b', B: "{{Upn}}"', b""))
