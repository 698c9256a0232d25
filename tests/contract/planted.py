"""The defects that `broken.py` can be given, each with the cases that must find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """What is wrong, and what the kit says about it. All other cases must pass."""

    what: str
    fails: tuple[str, ...] = ()
    advises: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    is_full: bool = False
    """Whether the tests put every case to it, or only its own and the quick ones: the whole kit takes its time."""


ACK_CASES = ("ack-answer-lost", "ack-answer-late", "ack-stale", "ack-unavailable")
BEAT_CASES = ("heartbeat-unavailable", "stale-in-work", "cancel-in-work")

WRITES_ALWAYS = "writes-always"
"""Writes to output_ref whatever last_step says: a fault only of a step that is not the last (`--not-last`)."""

FAULTS = {
    "never-acks": Planted(
        "sends no ACK", ("ack-in-time", "backlog"), not_run=(*ACK_CASES, "crash-before-ack"), is_full=True
    ),
    "acks-after-result": Planted(
        "sends its ACK when the work is done", ("ack-in-time",), not_run=("crash-before-ack",), is_full=True
    ),
    "shared-token": Planted(
        "keeps the callback token in one variable", ("own-ids", "backlog"), ("crash-before-answer",), is_full=True
    ),
    "first-attempt-always": Planted(
        "reports every attempt as attempt 1", ("next-attempt", "next-attempt-in-work", "crash-in-work"), is_full=True
    ),
    "no-memory-of-work": Planted(
        "does not see that a directive is in work already", ("duplicate-in-work",), is_full=True
    ),
    "no-memory-of-ends": Planted("works a directive again after its RESULT", ("duplicate-after-result",)),
    "dedups-on-step": Planted(
        "takes the next attempt of a step for a duplicate", ("next-attempt", "next-attempt-in-work")
    ),
    "ignores-stale-ack": Planted("works although the ACK was answered 409", ("ack-stale",)),
    "ignores-stale-heartbeat": Planted(
        "goes on although a heartbeat was answered 409", ("stale-in-work",), is_full=True
    ),
    "ack-once": Planted("gives a directive up when the ACK is answered 503", ("ack-unavailable",)),
    "ack-dropped": Planted("gives a directive up when the ACK's connection breaks", ("ack-answer-lost",)),
    "ack-impatient": Planted(
        "gives a directive up when the ACK is not answered in a second", ("ack-answer-lost", "ack-answer-late")
    ),
    "no-heartbeats": Planted("sends no heartbeats", ("heartbeat-keeps-lease",), not_run=BEAT_CASES, is_full=True),
    "percent-progress": Planted("reports progress from 0 to 100", ("heartbeat-keeps-lease", "stale-in-work")),
    "heartbeat-fatal": Planted("ends the work when a heartbeat fails", ("heartbeat-unavailable",)),
    "result-once": Planted("gives the RESULT up when it is answered 503", ("result-unavailable",)),
    "result-dropped": Planted("gives the RESULT up when the connection breaks", ("result-answer-lost",)),
    "result-hammers": Planted(
        "sends the RESULT again without a pause", ("result-unavailable", "result-retry-after"), is_full=True
    ),
    "result-impatient": Planted("sends the RESULT again every 0.2 s until one is answered", ("result-answer-slow",)),
    "ignores-retry-after": Planted("does not read Retry-After", ("result-retry-after",)),
    "repeats-duplicate": Planted("sends the RESULT again when it is answered DUPLICATE", ("result-answer-lost",)),
    "repeats-late": Planted("sends the RESULT again when it is answered LATE", ("result-late",), is_full=True),
    "repeats-stale": Planted("sends the RESULT again when it is answered 409", ("result-stale",)),
    "repeats-refused": Planted("sends the RESULT again when it is refused with 413 or 422", ("result-refused",)),
    "repeats-unauthenticated": Planted("sends the RESULT again when it is answered 401", ("result-unauthenticated",)),
    "silent-on-bad-input": Planted("sends no RESULT when the input is missing", ("bad-input",)),
    "succeeds-on-bad-input": Planted("reports success when the input is missing", ("bad-input",)),
    "no-failure-class": Planted("reports a failure without a failure_class", ("bad-input",)),
    "dies-on-unknown-field": Planted("ends when a directive has a field that it does not know", ("unknown-fields",)),
    "dies-on-large": Planted("ends when a directive is large", ("large-directive",)),
    "silent-after-cancel": Planted("sends no RESULT when the job is cancelled", ("cancel-at-ack", "cancel-in-work")),
    "exits-when-pull-fails": Planted("ends when a pull fails", ("pull-unavailable", "pull-refused"), is_full=True),
    "pull-hammers": Planted("pulls again without a pause when a pull fails", ("pull-unavailable",)),
    "busy-polls": Planted("pulls with wait_seconds 0 in a loop", ("idle",)),
    "drops-when-busy": Planted("acknowledges more than it can work, and drops the rest", ("backlog",)),
    "writes-outside": Planted("writes beside its workspace", ("result-good", "odd-tenant")),
    "writes-no-output": Planted("does not write to output_ref", ("result-good",)),
    "keeps-percent": Planted("does not decode the path of workspace_ref", ("odd-tenant",), is_full=True),
    "forgets-result": Planted("keeps the RESULT in memory only", advises=("crash-before-answer",)),
    "forgets-on-sigterm": Planted("ends at once on SIGTERM", advises=("sigterm-finishes-work",), is_full=True),
    "ignores-sigterm": Planted("does not end on SIGTERM", ("sigterm-exits",), ("sigterm-exit-code",)),
    "remembers-too-early": Planted(
        "notes on disk what it takes, and takes it for done after a restart", ("crash-before-ack",), is_full=True
    ),
    "stale-lock": Planted(
        "does not start when a lock file of its last life is there",
        ("crash-in-work", "crash-before-ack"),
        ("crash-before-answer",),
        ("sigterm-exits", "sigterm-finishes-work", "sigterm-exit-code"),
        is_full=True,
    ),
}
