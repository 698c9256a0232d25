"""The example's functions: believable, and of one effect however often a job is delivered."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "src" / "lucius" / "samples" / "mailbox" / "functions.py"


def load() -> ModuleType:
    """As a process of its own would have it: with the state that the folder holds."""
    spec = importlib.util.spec_from_file_location("mailbox_functions", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("MIGRATION_STATE", str(tmp_path / "state"))
    return load()


async def ask(example: ModuleType, function: str, address: str, job_id: str, **parameters: Any) -> dict[str, Any]:
    given = {"UserPrincipalName": address, **parameters}
    result: dict[str, Any] = await example.worker.call(function, given, job_id=job_id)
    return result


def state(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "state" / "tenant.json").read_text())


async def test_a_mailbox_is_moved_from_end_to_end(example: ModuleType, tmp_path: Path) -> None:
    ann = "ann@contoso.com"
    mailbox = (await ask(example, "Get-Mailbox", ann, "step-1-a1"))["result"]
    assert mailbox["SizeMB"] > 0
    made = await ask(example, "New-MailboxMove", ann, "step-2-a1", MailboxGuid=mailbox["MailboxGuid"])
    move_id = made["result"]["MoveRequestId"]
    looks = [await ask(example, "Start-MailboxMove", ann, f"step-3-a{n}", MoveRequestId=move_id) for n in (1, 2, 3)]
    assert [one["result"]["complete"] for one in looks] == [False, False, True]
    assert [one["result"]["percentComplete"] for one in looks] == [33, 66, 100]
    assert (await ask(example, "Complete-MailboxMove", ann, "step-4-a1"))["result"] == {"completed": True}
    forwarded = await ask(example, "Set-MailForwarding", ann, "step-5-a1", ForwardingAddress="ann@fabrikam.com")
    assert forwarded["result"] == {"changed": True}
    assert (await ask(example, "Remove-MailForwarding", ann, "step-6-a1"))["result"] == {"changed": True}
    assert state(tmp_path)["mailboxes"][ann]["move"]["state"] == "completed"


async def test_the_same_job_twice_has_one_effect_even_over_a_restart(example: ModuleType, tmp_path: Path) -> None:
    bob, before = "bob@contoso.com", None
    for module in (example, example, load()):
        await ask(module, "Send-Notification", bob, "step-1-a1")
        await ask(module, "New-MailboxMove", bob, "step-2-a1")
        await ask(module, "Start-MailboxMove", bob, "step-3-a1")
        await ask(module, "Set-MailForwarding", bob, "step-4-a1", ForwardingAddress="b@fabrikam.com")
        after = state(tmp_path)
        assert before in (None, after)
        before = after
    assert len(before["notified"]) == 1
    assert before["mailboxes"][bob]["move"]["looks"] == 1


async def test_a_broken_mailbox_fails_in_its_move_and_is_rolled_back(example: ModuleType, tmp_path: Path) -> None:
    broken = "broken.bill@contoso.com"
    await ask(example, "New-MailboxMove", broken, "step-1-a1")
    first = await ask(example, "Start-MailboxMove", broken, "step-2-a1")
    assert first["result"]["complete"] is False
    second = await ask(example, "Start-MailboxMove", broken, "step-2-a2")
    assert (second["error"]["type"], second["error"]["isThrottled"]) == ("MailboxCorrupt", False)
    assert (await ask(example, "Complete-MailboxMove", broken, "step-3-a1"))["error"]["type"] == "MoveNotReady"
    removed = [await ask(example, "Remove-MailboxMove", broken, "rollback-1-a1") for _ in range(2)]
    assert [one["result"]["removed"] for one in removed] == [True, False]
    assert state(tmp_path)["mailboxes"][broken]["move"] is None


async def test_a_busy_mailbox_is_throttled_twice_and_then_moved(example: ModuleType, tmp_path: Path) -> None:
    result = await ask(example, "New-MailboxMove", "busy.bea@contoso.com", "step-1-a1")
    assert result["status"] == "Success"
    assert state(tmp_path)["mailboxes"]["busy.bea@contoso.com"]["throttled"] == 2


async def test_the_tenants_test_is_polled(example: ModuleType) -> None:
    looks = [
        await example.worker.call("Test-Tenant", {"Tenant": "contoso.com"}, job_id=f"init-1-a{n}") for n in (1, 1, 2)
    ]
    assert [one["result"]["complete"] for one in looks] == [False, False, True]
