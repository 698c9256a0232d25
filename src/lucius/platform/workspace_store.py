"""Attempts as files: a claim in the attempt's own workspace folder, and a note of what this instance owes.

The claim is seen by every replica that shares the workspace, so a directive delivered to two of them is worked on once.
The notes lie in the state folder, and only their owner reads them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import ServiceUnusable, StepFailed
from lucius.platform.idempotency_store import INTERRUPTED, Owed, Seen, StoreFailed
from lucius.platform.refs import write_atomically
from lucius.platform.state_folder import StateFolder
from lucius.platform.workspace import Workspace

CLAIM = ".lucius-attempt"
OWED = "owed"


class WorkspaceStore:
    def __init__(self, folder: Path) -> None:
        self._folder = StateFolder(folder)
        self._claims: dict[AttemptKey, Path] = {}

    async def open(self) -> list[Owed]:
        return await asyncio.to_thread(self._open)

    async def begin(self, directive: Directive) -> Seen:
        return await self._guarded(self._begin, directive)  # type: ignore[no-any-return]

    async def finish(self, directive: Directive, result: dict[str, Any]) -> None:
        await self._guarded(self._finish, directive, result)

    async def settle(self, key: AttemptKey) -> None:
        await self._guarded(self._settle, key)

    async def drop(self, key: AttemptKey) -> None:
        await self._guarded(self._drop, key)

    async def close(self) -> None:
        self._folder.release()

    async def _guarded(self, work: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(work, *arguments)
        except OSError as error:
            raise StoreFailed(f"{type(error).__name__}: {error}") from error

    def _open(self) -> list[Owed]:
        self._folder.claim()
        folder = self._folder.path / OWED
        folder.mkdir(exist_ok=True)
        owed = []
        for note in sorted(folder.glob("*.json")):
            try:
                content = json.loads(note.read_bytes())
                key, claim = AttemptKey(*content["key"]), Path(content["claim"])
                one = Owed(key, content["tenant_id"], content["token"], content["result"] or INTERRUPTED)
            except (ValueError, KeyError, TypeError) as error:
                raise ServiceUnusable(f"{note} is damaged: {error}; move it away to start without it") from error
            if not claim.exists():
                note.unlink()  # It ended between note and claim: the attempt was never begun.
                continue
            self._claims[key] = claim
            owed.append(one)
        return owed

    def _begin(self, directive: Directive) -> Seen:
        try:
            claim = Workspace(directive).path(CLAIM)
        except StepFailed as error:
            raise StoreFailed(f"LUCIUS_PLATFORM_STORE=workspace cannot keep this attempt: {error}") from error
        if claim.exists():
            return _status(claim)
        claim.parent.mkdir(parents=True, exist_ok=True)
        note = self._note(directive.key)
        mine = not note.exists()
        self._write_note(directive, claim, None)
        try:
            handle = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            if mine:
                note.unlink(missing_ok=True)
            return _status(claim)
        with os.fdopen(handle, "w") as file:
            file.write(Seen.IN_WORK)
            file.flush()
            os.fsync(file.fileno())
        self._claims[directive.key] = claim
        return Seen.NEW

    def _finish(self, directive: Directive, result: dict[str, Any]) -> None:
        claim = self._claims[directive.key]
        self._write_note(directive, claim, result)
        write_atomically(claim, Seen.FINISHED.encode())

    def _settle(self, key: AttemptKey) -> None:
        claim = self._claims.pop(key, None)
        if claim is not None:
            write_atomically(claim, Seen.SETTLED.encode())
        self._note(key).unlink(missing_ok=True)

    def _drop(self, key: AttemptKey) -> None:
        claim = self._claims.pop(key, None)
        if claim is not None:
            claim.unlink(missing_ok=True)
        self._note(key).unlink(missing_ok=True)

    def _note(self, key: AttemptKey) -> Path:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return self._folder.path / OWED / f"{name}.json"

    def _write_note(self, directive: Directive, claim: Path, result: dict[str, Any] | None) -> None:
        content = {
            "key": directive.key,
            "claim": str(claim),
            "tenant_id": directive.tenant_id,
            "token": directive.callback_token,
            "result": result,
        }
        write_atomically(self._note(directive.key), json.dumps(content).encode(), 0o600)


def _status(claim: Path) -> Seen:
    try:
        return Seen(claim.read_text("utf-8") or Seen.IN_WORK)
    except (ValueError, FileNotFoundError):
        return Seen.IN_WORK
