"""Runbooks that are right, and one place to break them: a broken one marks the lines of its faults with `#!`."""

from __future__ import annotations

from lucius.runbooks.core.definition.faults import Fault, RunbookInvalid
from lucius.runbooks.core.definition.reading import read_runbook

MIGRATION = """\
name: contoso-mailbox-migration
description: Moves mailboxes.
data_source:
  type: sql
  connection: LUCIUS_SOURCE_HR
  query: SELECT UserPrincipalName, MigrationDate, Aliases, Target FROM moves
  primary_key: UserPrincipalName
  batch_time_column: MigrationDate
  absence: 10m
  multi_valued_columns:
    - {name: Aliases, format: semicolon_delimited}
retry: {max_retries: 2, interval: 1m}
progression: barrier
max_parallel: 500
max_failures: 5%
init:
  - name: open-window
    worker_id: exchange
    function: Open-Window
    params: {Batch: "{{_batch_id}}", At: "{{ _batch_start_time }}"}
    output_params: {WindowId: id}
  - name: announce
    worker_id: exchange
    function: Announce
    params: {Window: "{{WindowId}}"}
phases:
  - name: cutover
    offset: T-0
    approval: {role: admin, count: 2, until: T+1h, otherwise: skip}
    steps:
      - name: move
        worker_id: exchange
        function: Start-{{Target}}-Move
        params:
          Mailbox: "{{UserPrincipalName}}"
          Aliases: "{{Aliases}}"
          Ticket: "ticket {{TicketId}}"
        output_params: {MoveId: move.id}
        on_failure: undo
        timeout: 2h
        poll:
          interval: 15m
          timeout: 24h
        retry: {max_retries: 5, interval: 30s}
      - name: verify
        worker_id: exchange
        function: Verify
        params: {Move: "{{MoveId}}"}
  - name: pre-notification
    offset: T-5d
    steps:
      - name: notify
        worker_id: mail.eu
        function: Send-Mail
        params: {To: ["{{UserPrincipalName}}"], Deep: {A: [{B: "{{_batch_id}}"}], N: 1, Yes: true}}
        output_params: {TicketId: ticket}
on_member_removed:
  - name: cancel-move
    worker_id: exchange
    function: Cancel
    params: {Move: "{{MoveId}}"}
rollbacks:
  undo:
    - name: stop
      worker_id: exchange
      function: Stop
      params: {Move: "{{MoveId}}"}
      output_params: {Stopped: at}
    - name: tell
      worker_id: mail.eu
      function: Tell
      params: {At: "{{Stopped}}"}
time_zone: Europe/Berlin
windows:
  - {days: [mon, tue, wed, thu], from: "20:00", to: "06:00"}
  - {days: [sat, sun]}
freeze:
  - "2026-12-24"
  - {from: "2026-12-31", to: "2027-01-06", reason: year-end close}
  - {ics: LUCIUS_SOURCE_HOLIDAYS}
notifications:
  deadline: 8h
  warn_before: 30m
  recipients:
    - {name: teams, kind: json, url_env: LUCIUS_NOTIFY_TEAMS, causes: [batch_held], template: ["{{title}}"]}
    - {name: hook, kind: webhook, url: "https://ops.example", secret_env: LUCIUS_NOTIFY_SECRET, interval: 5m}
    - {name: mail, kind: email, to: [ops@acme.example]}
"""

COLUMNS = ("UserPrincipalName", "MigrationDate", "Aliases", "Target")

STEP = "{name: s, worker_id: w, function: F}"

BY_HAND = f"""\
name: By hand
data_source: {{type: manual, primary_key: Key}}
max_failures: 10
phases:
  - {{name: only, offset: T+2h, steps: [{STEP}]}}
"""

FROM_A_FILE = f"""\
name: From_a_file
data_source:
  type: csv
  connection: LUCIUS_SOURCE_FILE_2
  primary_key: Key
  batch_time: immediate
progression: independent
phases:
  - {{name: later, offset: T-90s, steps: [{STEP}]}}
  - {{name: sooner, offset: T-30m, steps: [{STEP}]}}
  - {{name: as later, offset: T-2m, steps: [{STEP}]}}
"""

VALID = {"migration": MIGRATION, "by hand": BY_HAND, "from a file": FROM_A_FILE}


def broken(old: str, new: str, text: str = MIGRATION) -> str:
    """The sample with one place changed; fails if the place is not there, or there twice."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the sample"
    return text.replace(old, new)


def marked_lines(text: str) -> list[int]:
    return [number for number, line in enumerate(text.split("\n"), 1) if "#!" in line]


def faults_of(text: str | bytes, columns: tuple[str, ...] | None = None) -> tuple[Fault, ...]:
    """The faults; empty where there are none."""
    try:
        read_runbook(text.encode() if isinstance(text, str) else text, columns)
    except RunbookInvalid as invalid:
        found = invalid.faults
    else:
        return ()
    assert found, "a runbook was refused without a fault"
    return found
