"""The mailbox migration as a story: a runbook is published, a batch made, and its phases are begun one by one.

Everything is done by the calls that any operator has, and told as it happens. At the end the batch is compared with
what the story says must have come of it, member by member.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import click

from lucius.cli.failures import CommandFailed, printable
from lucius.cli.runbook_client import RunbookClient
from lucius.cli.runbook_progress import ENDED, counts_text
from lucius.cli.runbook_render import detail_text
from lucius.cli.wording import text_of

Batch = dict[str, Any]

PHASES = ("announce", "prepare", "move", "clean-up")
BROKEN = "broken.billy@contoso.com"
LEAVER = "farid.haddad@contoso.com"
JOINER = "grace.late@contoso.com"
MEMBERS_MAX = 200
WAIT_SECONDS_MAX = 60.0
"""For each part of the story; all of it takes some fifteen seconds."""
LOOK_SECONDS = 0.25
EVENTS_READ = 200
UNTOLD = ("member-added", "phase-dispatched", "batch-advanced", "batch-detected", "init-dispatched")
"""Events that say again what the story has just said."""
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
    "batch-ended": "the batch is {status}: {reason}",
}
"""The others are told as `lucius batch events` tells them."""


class StoryBroken(CommandFailed):
    """The migration went otherwise than it should."""


class StoryStopped(CommandFailed):
    """Somebody pressed Ctrl-C."""


def packaged(name: str) -> str:
    return resources.files("lucius.migration").joinpath(name).read_text("utf-8")


class Story:
    def __init__(self, client: RunbookClient, stop: threading.Event | None = None) -> None:
        self._client = client
        self._stop = stop or threading.Event()
        self._told: set[Any] = set()
        self._counts: dict[tuple[str, str], str] = {}
        self._batch_id = 0

    def publish(self) -> None:
        """Before the worker starts: its queue is made with the runbook."""
        made = self._client.publish(packaged("runbook.yaml"), "rerun", rerun_init=False)
        self._name = str(made["name"])
        self._say("lucius runbook publish runbook.yaml", f"{self._name}, version {made['version']}, is active.")
        self._client.act_on_runbook(self._name, "stop")
        told = "Its data source is not read: here a batch is made by hand, and its phases do not wait for days."
        self._say(f"lucius runbook stop {self._name}", told)

    def run(self) -> Batch:
        """All of it; the batch as it ended."""
        csv = packaged("members.csv")
        made = self._client.create_batch(self._name, csv, None, "manual")
        self._batch_id = int(made["batch_id"])
        command = f"lucius batch create {self._name} --csv members.csv --manual"
        self._say(command, f"Batch {self._batch_id} of {made['members']} mailboxes. Its init runs, and polls.")
        self._until("its init is done", lambda batch: batch["status"] == "active")
        self._advance("announce", "T-5d")
        self._advance("prepare", "T-1d; a mailbox whose address begins with busy is throttled for a while")
        self._join()
        self._leave()
        self._advance("move", "T-0; polls until the mailboxes are moved. One is broken, fails, and is rolled back")
        self._advance("clean-up", "T+1d; not for the one that failed")
        return self._until("the batch has ended", lambda batch: batch["status"] in ENDED)

    def members(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.members(self._batch_id, "all", MEMBERS_MAX)["items"]
        return found

    # --- The parts ---------------------------------------------------------------------------------------------------

    def _advance(self, phase: str, told: str) -> None:
        answer = self._client.act_on_batch(self._batch_id, "advance")
        if answer.get("phase") != phase:
            raise StoryBroken(f"phase {phase} was to begin, and {answer.get('phase')} did")
        self._say(f"lucius batch advance {self._batch_id}", f"Phase {phase}, {told}.")
        self._until(f"phase {phase} has ended", lambda batch: _phase(batch, phase)["status"] in ENDED)

    def _join(self) -> None:
        self._client.act_on_batch(self._batch_id, "add", {"csv": packaged("late.csv")})
        self._say(f"lucius batch add {self._batch_id} --csv late.csv", f"{JOINER} joins late, and catches up.")
        self._until(f"{JOINER} has caught up", lambda batch: self._has_caught_up() and _is_quiet(batch))

    def _has_caught_up(self) -> bool:
        found = self._client.members(self._batch_id, "active", 1, key=JOINER)["items"]
        steps = found[0].get("steps") or [] if found else []
        return len(steps) == 3 and all(one["status"] == "succeeded" for one in steps)

    def _leave(self) -> None:
        self._client.remove_members(self._batch_id, [LEAVER])
        self._say(f"lucius batch remove {self._batch_id} {LEAVER}", "Its removal steps run.")
        self._until(f"{LEAVER} is gone", lambda batch: self._has_left())

    def _has_left(self) -> bool:
        found = self._client.members(self._batch_id, "removed", 1, key=LEAVER)["items"]
        followups = found[0].get("followups") or [] if found else []
        return len(followups) == 2 and all(one["status"] == "succeeded" for one in followups)

    # --- Telling -----------------------------------------------------------------------------------------------------

    def _until(self, what: str, is_reached: Callable[[Batch], bool]) -> Batch:
        """Look, and tell what is new, until it is reached."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            if self._stop.is_set():
                raise StoryStopped("interrupted")
            batch = self._client.batch(self._batch_id)
            self._tell(batch)
            if is_reached(batch):
                return batch
            if batch.get("status") in ENDED:
                raise StoryBroken(f"the batch is {batch['status']} before {what}: {text_of(batch.get('error'))}")
            if time.monotonic() > deadline:
                waits = "; ".join(map(str, batch.get("waiting_for") or ())) or "the server does not say for what"
                raise StoryBroken(f"after {WAIT_SECONDS_MAX:g} s it is not true that {what}. The batch waits: {waits}")
            self._stop.wait(LOOK_SECONDS)

    def _tell(self, batch: Batch) -> None:
        for step in batch.get("init") or ():
            self._tell_counts("init", str(step.get("step")), text_of(step.get("status")))
        for phase in batch.get("phase_list") or ():
            for step in phase.get("steps") or ():
                told = counts_text(step.get("counts") or {})
                self._tell_counts(str(phase.get("phase")), str(step.get("step")), told)
        for event in reversed(self._client.batch_events(self._batch_id, EVENTS_READ)["items"]):
            if event.get("id") not in self._told:
                self._told.add(event.get("id"))
                if event.get("kind") not in UNTOLD:
                    self._tell_event(event)

    def _tell_counts(self, phase: str, step: str, told: str) -> None:
        if told and self._counts.get((phase, step)) != told:
            self._counts[phase, step] = told
            click.echo(click.style(f"    {phase + ' / ' + step:<25} {printable(told)}", dim=True))

    def _tell_event(self, event: dict[str, Any]) -> None:
        kind, detail = str(event.get("kind")), dict(event.get("detail") or {})
        detail = {
            name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in detail.items()
        }
        detail["member"] = event.get("member") or detail.get("member")
        told = SENTENCES[kind].format_map(detail) if kind in SENTENCES else f"{kind}  {detail_text(event)}"
        colour = {"step-failed": "red", "rollback-started": "yellow", "rollback-done": "yellow"}.get(kind)
        click.echo(f"    {click.style(printable(told), fg=colour)}")

    def _say(self, command: str, told: str) -> None:
        click.echo(click.style(f"\n$ {printable(command)}", bold=True))
        click.echo(f"  {printable(told)}")


def _phase(batch: Batch, name: str) -> dict[str, Any]:
    return next(one for one in batch["phase_list"] if one["phase"] == name)


def _is_quiet(batch: Batch) -> bool:
    """No phase is under way: those that were reopened for a late joiner have ended again."""
    return all(one["status"] != "dispatched" for one in batch["phase_list"])


# --- What must have come of it ---------------------------------------------------------------------------------------


def faults_of(batch: Batch, members: list[dict[str, Any]]) -> list[str]:
    """What came out otherwise than the story says; empty if nothing did."""
    found = {str(one["member"]): one for one in members}
    faults = [] if len(found) == 9 else [f"the batch has {len(found)} members, and should have 9"]
    if batch.get("status") != "failed":
        faults.append(f"the batch is {batch.get('status')}: with a member that failed it should be failed")
    for key, member in found.items():
        if key == LEAVER:
            faults += _leaver_faults(member)
        elif key == BROKEN:
            faults += _broken_faults(member)
        else:
            faults += [
                f"{key}: {one['step']} is {one['status']}, and should have succeeded"
                for one in member["steps"]
                if one["status"] != "succeeded"
            ]
            if len(member["steps"]) != 7:
                faults.append(f"{key} has {len(member['steps'])} steps, and should have 7")
    return faults


def _leaver_faults(member: dict[str, Any]) -> list[str]:
    done = [(one["step"], one["status"]) for one in member["followups"] if one["kind"] == "removal"]
    wanted = [("remove-move", "succeeded"), ("tell-cancelled", "succeeded")]
    faults = [] if member["status"] == "removed" else [f"{LEAVER} is {member['status']}, and should be removed"]
    return faults if done == wanted else [*faults, f"{LEAVER}: its removal steps are {done}"]


def _broken_faults(member: dict[str, Any]) -> list[str]:
    status = {one["step"]: one["status"] for one in member["steps"]}
    done = [(one["step"], one["status"]) for one in member["followups"] if one["kind"] == "rollback"]
    wanted = [(name, "succeeded") for name in ("remove-forwarding", "remove-move", "tell-postponed")]
    faults = []
    if status.get("start-move") != "rolled_back":
        faults.append(f"{BROKEN}: start-move is {status.get('start-move')}, and should be rolled_back")
    if {status.get(name) for name in ("complete-move", "forward-mail", "tell-done")} != {"cancelled"}:
        faults.append(f"{BROKEN}: the steps after the failed one should be cancelled")
    return faults if done == wanted else [*faults, f"{BROKEN}: its rollback steps are {done}"]
