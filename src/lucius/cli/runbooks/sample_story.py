"""The mailbox migration as a story: publishes a runbook, creates a batch, and begins its phases one by one.

It uses only calls that any operator has, and reports what happens. At the end the batch is compared with the expected
result, member by member.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import click

from lucius.cli.connection import ApiSession
from lucius.cli.failures import CommandFailed, printable
from lucius.cli.output.formatting import text_of
from lucius.cli.output.program import as_typed
from lucius.cli.runbooks.progress import ENDED, counts_text
from lucius.cli.runbooks.render import detail_text
from lucius.client.calls import admin as admin_calls
from lucius.client.calls import batches as batch_calls
from lucius.client.calls import runbooks as runbook_calls

Batch = dict[str, Any]

PHASES = ("announce", "prepare", "move", "clean-up")
BROKEN = "broken.billy@contoso.com"
LEAVER = "farid.haddad@contoso.com"
JOINER = "grace.late@contoso.com"
MEMBERS_MAX = 200
WAIT_SECONDS_MAX = 60.0
"""For each part of the story; the whole story takes about fifteen seconds."""
POLL_SECONDS = 0.25
EVENTS_READ = 200
UNREPORTED = ("member-added", "phase-dispatched", "batch-advanced", "batch-detected", "init-dispatched")
"""Events that repeat what has just been printed."""
SENTENCES = {
    "batch-active": "the batch is active: its phases can begin",
    "phase-ended": "phase {phase} is {status}",
    "member-catches-up": "{member} catches up on {phases}",
    "member-removed": "{member} is out of the batch",
    "removal-started": "removal steps begin for {member}: {steps}",
    "removal-done": "removal steps are done for {member}",
    "step-failed": "{step} failed for {member}, retries included: {reason}",
    "rollback-started": "rollback {list} begins for {member}: {steps}",
    "rollback-done": "rollback {list} is done for {member}",
    "batch-ended": "the batch has ended: {reason}",
}
"""Other events are shown as by `lucius batch events`."""


class StoryBroken(CommandFailed):
    """The migration did not go as expected."""


class StoryStopped(CommandFailed):
    """Somebody pressed Ctrl-C."""


def packaged(name: str) -> str:
    return resources.files("lucius.samples.mailbox").joinpath(name).read_text("utf-8")


class Story:
    def __init__(self, client: ApiSession, stop: threading.Event | None = None) -> None:
        self._client = client
        self._stop = stop or threading.Event()
        self._reported: set[Any] = set()
        self._counts: dict[tuple[str, str], str] = {}
        self._batch_id = 0

    def publish(self) -> None:
        """Call before the worker starts: publishing creates its queue."""
        published = self._client.run(runbook_calls.publish(packaged("runbook.yaml")))
        self._name = str(published["name"])
        self._say("lucius runbook publish runbook.yaml", f"{self._name}, version {published['version']}, is active.")
        self._client.run(runbook_calls.stop(self._name))
        effect = "Its data source is not read: the sample creates a batch manually, and its phases do not wait days."
        self._say(f"lucius runbook stop {self._name}", effect)

    def run(self) -> Batch:
        """Run the whole story; returns the ended batch."""
        csv = packaged("members.csv")
        created = self._client.run(batch_calls.create(self._name, csv, advance="manual"))
        self._batch_id = int(created["batch_id"])
        command = f"lucius batch create {self._name} --csv members.csv --manual"
        self._say(command, f"Batch {self._batch_id} of {created['members']} mailboxes. Its init runs, and polls.")
        self._show_console()
        self._until("its init is done", lambda batch: batch["status"] == "active")
        self._advance("announce", "T-5d")
        self._advance("prepare", "T-1d; a mailbox whose address begins with busy is throttled for a while")
        self._join()
        self._leave()
        self._advance("move", "T-0; polls until the mailboxes are moved. One is broken, fails, and is rolled back")
        self._advance("clean-up", "T+1d; not for the one that failed")
        return self._until("the batch has ended", lambda batch: batch["status"] in ENDED)

    def _show_console(self) -> None:
        """Where to watch the batch in a browser, if the server has a console and the key may sign in there."""
        try:
            link = str(self._client.run(admin_calls.console_link())["url"])
        except CommandFailed:
            return
        page = f"{link.partition('/sign-in/')[0]}/batches/{self._batch_id}"
        self._say("lucius console link", f"{link} signs in, once and within a minute.")
        click.echo(f"  Watch the batch in a browser: {printable(page)}")

    def members(self) -> list[dict[str, Any]]:
        return self._found(limit=MEMBERS_MAX)

    # --- The parts ---------------------------------------------------------------------------------------------------

    def _advance(self, phase: str, effect: str) -> None:
        answer = self._client.run(batch_calls.advance(self._batch_id))
        if answer.get("phase") != phase:
            raise StoryBroken(f"phase {phase} should begin, but {answer.get('phase')} did")
        self._say(f"lucius batch advance {self._batch_id}", f"Phase {phase}, {effect}.")
        self._until(f"phase {phase} has ended", lambda batch: _phase(batch, phase)["status"] in ENDED)

    def _join(self) -> None:
        self._client.run(batch_calls.add(self._batch_id, packaged("late.csv")))
        self._say(f"lucius batch add {self._batch_id} --csv late.csv", f"{JOINER} joins late, and catches up.")
        self._until(f"{JOINER} has caught up", lambda batch: self._has_caught_up() and _is_quiet(batch))

    def _has_caught_up(self) -> bool:
        found = self._found(status="active", key=JOINER, limit=1)
        steps = found[0].get("steps") or [] if found else []
        return len(steps) == 3 and all(step["status"] == "succeeded" for step in steps)

    def _leave(self) -> None:
        self._client.run(batch_calls.remove(self._batch_id, [LEAVER]))
        self._say(f"lucius batch remove {self._batch_id} {LEAVER}", "Its removal steps run.")
        self._until(f"{LEAVER} is gone", lambda batch: self._has_left())

    def _has_left(self) -> bool:
        found = self._found(status="removed", key=LEAVER, limit=1)
        followups = found[0].get("followups") or [] if found else []
        return len(followups) == 2 and all(step["status"] == "succeeded" for step in followups)

    def _found(self, **options: Any) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = self._client.run(batch_calls.members(self._batch_id, **options))["items"]
        return members

    # --- Reporting ---------------------------------------------------------------------------------------------------

    def _until(self, what: str, is_reached: Callable[[Batch], bool]) -> Batch:
        """Poll the batch and report what is new, until the condition is reached."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            if self._stop.is_set():
                raise StoryStopped("interrupted")
            batch = self._client.run(batch_calls.get_batch(self._batch_id))
            self._report(batch)
            if is_reached(batch):
                return batch
            if batch.get("status") in ENDED:
                raise StoryBroken(f"the batch is {batch['status']} before {what}: {text_of(batch.get('error'))}")
            if time.monotonic() > deadline:
                waits = "; ".join(map(str, batch.get("waiting_for") or ())) or "the server does not say for what"
                raise StoryBroken(f"after {WAIT_SECONDS_MAX:g} s still waiting for: {what}. The batch waits: {waits}")
            self._stop.wait(POLL_SECONDS)

    def _report(self, batch: Batch) -> None:
        for step in batch.get("init") or ():
            self._report_counts("init", str(step.get("step")), text_of(step.get("status")))
        for phase in batch.get("phase_list") or ():
            for step in phase.get("steps") or ():
                counts = counts_text(step.get("counts") or {})
                self._report_counts(str(phase.get("phase")), str(step.get("step")), counts)
        for event in reversed(self._client.run(batch_calls.events(self._batch_id, limit=EVENTS_READ))["items"]):
            if event.get("id") not in self._reported:
                self._reported.add(event.get("id"))
                if event.get("kind") not in UNREPORTED:
                    self._report_event(event)

    def _report_counts(self, phase: str, step: str, counts: str) -> None:
        if counts and self._counts.get((phase, step)) != counts:
            self._counts[phase, step] = counts
            click.echo(click.style(f"    {phase + ' / ' + step:<25} {printable(counts)}", dim=True))

    def _report_event(self, event: dict[str, Any]) -> None:
        kind, detail = str(event.get("kind")), dict(event.get("detail") or {})
        detail = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in detail.items()
        }
        detail["member"] = event.get("member") or detail.get("member")
        text = SENTENCES[kind].format_map(detail) if kind in SENTENCES else f"{kind}  {detail_text(event)}"
        colour = {"step-failed": "red", "rollback-started": "yellow", "rollback-done": "yellow"}.get(kind)
        click.echo(f"    {click.style(printable(text), fg=colour)}")

    def _say(self, command: str, effect: str) -> None:
        click.echo(click.style(f"\n$ {printable(as_typed(command))}", bold=True))
        click.echo(f"  {printable(effect)}")


def _phase(batch: Batch, name: str) -> dict[str, Any]:
    return next(phase for phase in batch["phase_list"] if phase["phase"] == name)


def _is_quiet(batch: Batch) -> bool:
    """No phase is under way: those that were reopened for a late joiner have ended again."""
    return all(phase["status"] != "dispatched" for phase in batch["phase_list"])


# --- Expected result -------------------------------------------------------------------------------------------------


def faults_of(batch: Batch, members: list[dict[str, Any]]) -> list[str]:
    """Differences from the expected result; empty if there are none."""
    found = {str(member["member"]): member for member in members}
    faults = [] if len(found) == 9 else [f"the batch has {len(found)} members; it should have 9"]
    if batch.get("status") != "failed":
        faults.append(f"the batch is {batch.get('status')}: with a member that failed it should be failed")
    for key, member in found.items():
        if key == LEAVER:
            faults += _leaver_faults(member)
        elif key == BROKEN:
            faults += _broken_faults(member)
        else:
            faults += [
                f"{key}: {step['step']} is {step['status']}; it should have succeeded"
                for step in member["steps"]
                if step["status"] != "succeeded"
            ]
            if len(member["steps"]) != 7:
                faults.append(f"{key} has {len(member['steps'])} steps; it should have 7")
    return faults


def _leaver_faults(member: dict[str, Any]) -> list[str]:
    done = [(step["step"], step["status"]) for step in member["followups"] if step["kind"] == "removal"]
    expected = [("remove-move", "succeeded"), ("tell-cancelled", "succeeded")]
    faults = [] if member["status"] == "removed" else [f"{LEAVER} is {member['status']}; it should be removed"]
    return faults if done == expected else [*faults, f"{LEAVER}: its removal steps are {done}"]


def _broken_faults(member: dict[str, Any]) -> list[str]:
    status = {step["step"]: step["status"] for step in member["steps"]}
    done = [(step["step"], step["status"]) for step in member["followups"] if step["kind"] == "rollback"]
    expected = [(name, "succeeded") for name in ("remove-forwarding", "remove-move", "tell-postponed")]
    faults = []
    if status.get("start-move") != "rolled_back":
        faults.append(f"{BROKEN}: start-move is {status.get('start-move')}; it should be rolled_back")
    if {status.get(name) for name in ("complete-move", "forward-mail", "tell-done")} != {"cancelled"}:
        faults.append(f"{BROKEN}: the steps after the failed one should be cancelled")
    return faults if done == expected else [*faults, f"{BROKEN}: its rollback steps are {done}"]
