"""Versions compared: each change is found, named in words, and nothing else is."""

from __future__ import annotations

import pytest
from definition_samples import BY_HAND, FROM_A_FILE, MIGRATION, STEP, VALID, broken

from lucius.runbooks.core.definition.compare import SHOWN_CHARS_MAX, Difference, differences, show
from lucius.runbooks.core.definition.reading import read_runbook


def _changed(old: str, new: str, text: str = MIGRATION) -> list[Difference]:
    return differences(read_runbook(text.encode()), read_runbook(broken(old, new, text).encode()))


@pytest.mark.parametrize("text", VALID.values(), ids=[*VALID])
def test_runbook_does_not_differ_from_itself(text: str) -> None:
    runbook = read_runbook(text.encode())
    assert differences(runbook, runbook) == []
    assert show([]) == ""


QUERY = "query: SELECT UserPrincipalName, MigrationDate, Aliases, Target FROM moves"
NOTIFY = "phase pre-notification / step notify / "
MOVE = "phase cutover / step move / "


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("Moves mailboxes.", "Moves all.", ["~ description: Moves mailboxes. → Moves all."]),
        ("description: Moves mailboxes.\n", "", ["- description: Moves mailboxes."]),
        ("max_parallel: 500\n", "", ["- max_parallel: 500"]),
        ("max_failures: 5%", "max_failures: 5", ["~ max_failures: 5% → 5"]),
        (QUERY, "query: SELECT 2", [f"~ data_source.{QUERY} → SELECT 2"]),
        (
            "batch_time_column: MigrationDate",
            "batch_time: immediate",
            ["~ data_source.batch_time: MigrationDate → immediate"],
        ),
        ("absence: 10m", "absence: 90s", ["~ data_source.absence: 10m → 90s"]),
        ("  absence: 10m\n", "", ["- data_source.absence: 10m"]),
        (
            "format: semicolon_delimited",
            "format: json_array",
            ["~ data_source.multi_valued_columns.Aliases: semicolon_delimited → json_array"],
        ),
        ("LUCIUS_SOURCE_HR", "LUCIUS_SOURCE_X", ["~ data_source.connection: LUCIUS_SOURCE_HR → LUCIUS_SOURCE_X"]),
        ("offset: T-5d", "offset: T-4d", ["~ phase pre-notification / offset: T-5d → T-4d"]),
        ("offset: T-5d", "offset: T+1d", ["~ phase pre-notification / offset: T-5d → T+1d"]),
        ("N: 1", "N: '1'", [f'~ {NOTIFY}params.Deep.N: 1 → "1"']),
        ("N: 1", "M: 1", [f"- {NOTIFY}params.Deep.N: 1", f"+ {NOTIFY}params.Deep.M: 1"]),
        ("N: 1", "N: null", [f"~ {NOTIFY}params.Deep.N: 1 → null"]),
        ("timeout: 2h", "timeout: 90m", [f"~ {MOVE}timeout: 2h → 90m"]),
        ("        on_failure: undo\n", "", [f"- {MOVE}on_failure: undo"]),
        ("          timeout: 24h", "          timeout: 25h", [f"~ {MOVE}poll.timeout: 1d → 25h"]),
        ("{max_retries: 5, interval: 30s}", "{max_retries: 0}", [f"~ {MOVE}retry: 5 after 30s each → none"]),
        ("{TicketId: ticket}", "{TicketId: t.id}", [f"~ {NOTIFY}output_params.TicketId: ticket → t.id"]),
        (
            "name: verify",
            "name: check",
            ["- phase cutover / step verify: Verify at exchange", "+ phase cutover / step check: Verify at exchange"],
        ),
        ("function: Cancel", "function: Abort", ["~ removal step cancel-move / function: Cancel → Abort"]),
        ("function: Announce", "function: Say", ["~ init step announce / function: Announce → Say"]),
        ("function: Tell", "function: Say", ["~ rollback undo / step tell / function: Tell → Say"]),
        ("rollbacks:\n", f"rollbacks:\n  more: [{STEP}]\n", ["+ rollback more: steps s"]),
        (
            "name: pre-notification",
            "name: notice",
            ["- phase pre-notification: T-5d, steps notify", "+ phase notice: T-5d, steps notify"],
        ),
    ],
)
def test_change_is_shown_in_words(old: str, new: str, shown: list[str]) -> None:
    assert show(_changed(old, new)).split("\n") == shown


def test_change_holds_what_was_before_and_after() -> None:
    assert _changed("offset: T-5d", "offset: T-4h") == [
        Difference("changed", "phase pre-notification / offset", "T-5d", "T-4h")
    ]


def test_order_of_steps_and_of_phases_of_one_moment_is_a_change() -> None:
    old = f"[{STEP}, {STEP.replace('name: s', 'name: t')}]"
    new = f"[{STEP.replace('name: s', 'name: t')}, {STEP}]"
    text = broken(f"[{STEP}]", old, BY_HAND)
    assert show(_changed(old, new, text)) == "~ phase only / steps, their order: s, t → t, s"
    phases = FROM_A_FILE.partition("phases:\n")[2]
    lines = phases.splitlines(keepends=True)
    assert show(_changed(phases, "".join(reversed(lines)), FROM_A_FILE)) == (
        "~ phases, their order: sooner, later, as later → sooner, as later, later"
    )


def test_source_that_becomes_manual_shows_all_it_loses() -> None:
    found = differences(read_runbook(FROM_A_FILE.encode()), read_runbook(BY_HAND.encode()))
    assert ("~ data_source.type: csv → manual") in show(found)
    assert ("- data_source.batch_time: immediate") in show(found)


def test_values_are_shown_on_one_line_and_in_part() -> None:
    (found,) = _changed("description: Moves mailboxes.", f'description: "a\\n{"x" * 3_000}"')
    assert found.after is not None
    assert len(found.after) > 3_000
    line = show([found])
    assert "\n" not in line
    assert len(line) < SHOWN_CHARS_MAX + 100
