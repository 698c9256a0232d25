"""The functions of a mailbox migration, simulated: no network, and a tenant that is one JSON file.

    lucius runbook worker lucius.samples.mailbox.functions

The state is in the folder MIGRATION_STATE, else in a new temporary one. One process uses it at a time. An address that
begins with `broken` fails in its move; one that begins with `busy` is throttled twice first.

Every function here is idempotent: a worker may die after the effect and before its result is sent, and then the job is
redelivered. Three ways to achieve that are shown:
- request an end state instead of a change (`Set-MailForwarding`: an existing setting is left unchanged);
- let the system identify the object (`New-MailboxMove`: a mailbox has one move, and a second call finds it);
- remember the step (`Send-Notification`: `job.step_key` is the same for every dispatch of a step).
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from lucius.functions import Fail, FunctionWorker, Job, StillRunning, Throttled

LOOKS_UNTIL_READY = 2
LOOKS_UNTIL_MOVED = 3
THROTTLED_TRIES = 2
TENANT = uuid.UUID("6f1c1a52-5d2e-4a55-9a2b-4be0f1b5a0c1")

worker = FunctionWorker("exchange")


class Tenant:
    """The tenant's state, consistent after every change. Functions run in threads, so access is serialized."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @cached_property
    def _path(self) -> Path:
        """Created at first use: importing this file leaves nothing behind."""
        path = Path(self._folder or tempfile.mkdtemp(prefix="mailbox-migration-")) / "tenant.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @cached_property
    def _state(self) -> dict[str, dict[str, Any]]:
        if self._path.exists():
            found: dict[str, dict[str, Any]] = json.loads(self._path.read_text("utf-8"))
            return found
        return {"checks": {}, "notified": {}, "mailboxes": {}}

    @contextmanager
    def change(self) -> Iterator[dict[str, dict[str, Any]]]:
        with self._lock:
            try:
                yield self._state
            finally:  # Failures are saved too: `busy` counts how often it was throttled.
                beside = self._path.with_suffix(".new")
                beside.write_text(json.dumps(self._state, indent=1, sort_keys=True), "utf-8")
                os.replace(beside, self._path)

    @contextmanager
    def mailbox(self, address: str) -> Iterator[dict[str, Any]]:
        if "@" not in address:
            raise Fail(f"{address!r} is not an address", type="MailboxNotFound")
        with self.change() as state:
            yield state["mailboxes"].setdefault(address.lower(), {"forwarding": None, "move": None, "throttled": 0})


tenant = Tenant(os.environ.get("MIGRATION_STATE"))


def identity(kind: str, name: str) -> str:
    """The same id for the same name, as a real system would store it."""
    return str(uuid.uuid5(TENANT, f"{kind}/{name.lower()}"))


def look(record: dict[str, Any], job: Job) -> int:
    """How often this was polled. A redelivered job counts once."""
    if record.get("last_look") != job.job_id:
        record["last_look"] = job.job_id
        record["looks"] = record.get("looks", 0) + 1
    return int(record["looks"])


def move_of(mailbox: dict[str, Any], address: str, wanted: str | None) -> dict[str, Any]:
    move = mailbox["move"]
    if move is None or wanted not in (None, move["id"]):
        raise Fail(f"{address} has no such move request", type="MoveRequestNotFound")
    return dict(move)


@worker.function("Test-Tenant")
def check_tenant(job: Job, Tenant: str = "contoso.com") -> dict[str, Any]:
    """An init step with a poll: ready at the second call."""
    with tenant.change() as state:
        looks = look(state["checks"].setdefault(f"{Tenant}/{job.step_key}", {}), job)
    if looks < LOOKS_UNTIL_READY:
        return StillRunning({"tenant": Tenant, "waitingFor": "mail routing"})
    return {"complete": True, "tenant": Tenant, "TenantId": identity("tenant", Tenant)}


@worker.function("Send-Notification")
def send_notification(
    UserPrincipalName: str, job: Job, Template: str = "migration-planned", Aliases: list[str] | None = None
) -> dict[str, Any]:
    mail = {"to": [UserPrincipalName, *(Aliases or ())], "template": Template, "id": identity("mail", job.step_key)}
    with tenant.change() as state:
        sent = state["notified"].setdefault(job.step_key, mail)
        return {"NotificationId": sent["id"], "template": sent["template"]}


@worker.function("Get-Mailbox", quick=True)
def get_mailbox(UserPrincipalName: str) -> dict[str, Any]:
    guid = identity("mailbox", UserPrincipalName)
    return {"MailboxGuid": guid, "SizeMB": 200 + int(guid[:4], 16) % 9_800}


@worker.function("New-MailboxMove")
def new_mailbox_move(UserPrincipalName: str, MailboxGuid: str | None = None) -> dict[str, Any]:
    if MailboxGuid not in (None, identity("mailbox", UserPrincipalName)):
        raise Fail(f"{UserPrincipalName} has another MailboxGuid", type="MailboxNotFound")
    with tenant.mailbox(UserPrincipalName) as mailbox:
        if UserPrincipalName.lower().startswith("busy") and mailbox["throttled"] < THROTTLED_TRIES:
            mailbox["throttled"] += 1
            raise Throttled("the tenant allows no more moves at the moment", retry_after_seconds=0.2)
        if mailbox["move"] is None:
            mailbox["move"] = {"id": identity("move", UserPrincipalName), "looks": 0, "state": "created"}
        return {"MoveRequestId": mailbox["move"]["id"]}


@worker.function("Start-MailboxMove")
def start_mailbox_move(UserPrincipalName: str, job: Job, MoveRequestId: str | None = None) -> dict[str, Any]:
    """A polling step: starts the move at the first call, and checks it at each later one."""
    with tenant.mailbox(UserPrincipalName) as mailbox:
        move = move_of(mailbox, UserPrincipalName, MoveRequestId)
        if move["state"] in ("synced", "completed"):
            return {"complete": True, "percentComplete": 100}
        looks = look(move, job)
        is_broken = looks > 1 and UserPrincipalName.lower().startswith("broken")
        is_synced = looks >= LOOKS_UNTIL_MOVED
        mailbox["move"] = move | {"state": "failed" if is_broken else "synced" if is_synced else "syncing"}
    if is_broken:
        raise Fail(f"the mailbox of {UserPrincipalName} has corrupt items", type="MailboxCorrupt")
    if not is_synced:
        return StillRunning({"percentComplete": 100 * looks // LOOKS_UNTIL_MOVED})
    return {"complete": True, "percentComplete": 100}


@worker.function("Complete-MailboxMove")
def complete_mailbox_move(UserPrincipalName: str, MoveRequestId: str | None = None) -> dict[str, Any]:
    with tenant.mailbox(UserPrincipalName) as mailbox:
        move = move_of(mailbox, UserPrincipalName, MoveRequestId)
        if move["state"] not in ("synced", "completed"):
            raise Fail(f"the move of {UserPrincipalName} is {move['state']}, not synced", type="MoveNotReady")
        mailbox["move"] = move | {"state": "completed"}
    return {"completed": True}


@worker.function("Set-MailForwarding")
def set_mail_forwarding(UserPrincipalName: str, ForwardingAddress: str) -> dict[str, Any]:
    with tenant.mailbox(UserPrincipalName) as mailbox:
        changed = mailbox["forwarding"] != ForwardingAddress
        mailbox["forwarding"] = ForwardingAddress
    return {"changed": changed}


@worker.function("Remove-MailForwarding")
def remove_mail_forwarding(UserPrincipalName: str) -> dict[str, Any]:
    with tenant.mailbox(UserPrincipalName) as mailbox:
        changed = mailbox["forwarding"] is not None
        mailbox["forwarding"] = None
    return {"changed": changed}


@worker.function("Remove-MailboxMove")
def remove_mailbox_move(UserPrincipalName: str) -> dict[str, Any]:
    """For rollbacks and for members that leave. A missing move counts as removed."""
    with tenant.mailbox(UserPrincipalName) as mailbox:
        move, mailbox["move"] = mailbox["move"], None
    return {"removed": move is not None}


if __name__ == "__main__":
    worker.run()
