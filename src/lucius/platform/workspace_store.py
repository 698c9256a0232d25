"""Attempts as files: a claim in the attempt's workspace folder, and a note of this instance's unanswered RESULTs.

Every replica that shares the workspace sees the claim, so a directive delivered to two of them is worked on once. The
claim names its owner, because a note is written before its claim and may remain when another replica won the claim.
Notes are in the state folder and read only by their owner.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import ServiceUnusable, StepFailed
from lucius.platform.idempotency_store import INTERRUPTED, Owed, Seen, StoreFailed
from lucius.platform.safe_files import write_atomically
from lucius.platform.state_folder import StateFolder
from lucius.platform.workspace import Workspace

CLAIM = ".lucius-attempt"
OWED = "owed"


class Claim(NamedTuple):
    path: Path | None
    """`None` if the workspace_ref is unusable: such an attempt fails before it writes anything."""
    owner: str

    def write(self, seen: Seen) -> None:
        """Does not recreate folders of a workspace that was cleaned up meanwhile."""
        if self.path is not None and self.path.parent.is_dir():
            write_atomically(self.path, f"{seen} {self.owner}".encode())
            _sync(self.path.parent)


class WorkspaceStore:
    def __init__(self, folder: Path) -> None:
        self._folder = StateFolder(folder)
        self._claims: dict[AttemptKey, Claim] = {}
        self._beginning: set[AttemptKey] = set()

    async def open(self) -> list[Owed]:
        return await asyncio.to_thread(self._open)

    async def begin(self, directive: Directive) -> Seen:
        if directive.key in self._beginning:
            return Seen.IN_WORK  # Two threads would overwrite each other's note.
        self._beginning.add(directive.key)
        try:
            return await self._guarded(self._begin, directive)  # type: ignore[no-any-return]
        finally:
            self._beginning.discard(directive.key)

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
        try:
            folder = self._folder.path / OWED
            folder.mkdir(mode=0o700, exist_ok=True)
            return [owed for note in sorted(folder.glob("*.json")) if (owed := self._read_note(note))]
        except OSError as error:
            self._folder.release()
            raise ServiceUnusable(f"{self._folder.path / OWED} cannot be used: {error.strerror}") from error
        except ServiceUnusable:
            self._folder.release()
            raise

    def _read_note(self, note: Path) -> Owed | None:
        try:
            content = json.loads(note.read_bytes())
            key, result = AttemptKey(*content["key"]), content["result"]
            claim = Claim(Path(content["claim"]) if content["claim"] else None, content["owner"])
            sent = result or {**INTERRUPTED, **content.get("context", {})}
            owed = Owed(key, content["tenant_id"], content["token"], sent)
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceUnusable(f"{note} is damaged: {error}; move it away to start without it") from error
        if result is None and claim.path is not None and _read_claim(claim.path)[1] != claim.owner:
            note.unlink()  # Died between note and claim: this instance never began the attempt.
            return None
        self._claims[key] = claim
        return owed

    def _begin(self, directive: Directive) -> Seen:
        held = self._claims.get(directive.key)
        if held is not None:
            return _read_claim(held.path)[0]
        try:
            path = Workspace(directive).path(CLAIM)
        except StepFailed:
            path = None
        if path is not None:
            if path.exists():
                return _read_claim(path)[0]
            path.parent.mkdir(parents=True, exist_ok=True)
        claim = Claim(path, secrets.token_hex(16))
        self._write_note(directive, claim, None)
        if path is not None and not _create(path, f"{Seen.IN_WORK} {claim.owner}"):
            self._note(directive.key).unlink(missing_ok=True)
            return _read_claim(path)[0]
        self._claims[directive.key] = claim
        return Seen.NEW

    def _finish(self, directive: Directive, result: dict[str, Any]) -> None:
        claim = self._claims[directive.key]
        self._write_note(directive, claim, result)
        claim.write(Seen.FINISHED)

    def _settle(self, key: AttemptKey) -> None:
        claim = self._claims.get(key)
        if claim is not None:
            claim.write(Seen.SETTLED)
        self._forget(key)

    def _drop(self, key: AttemptKey) -> None:
        claim = self._claims.get(key)
        if claim is not None and claim.path is not None:
            claim.path.unlink(missing_ok=True)
        self._forget(key)

    def _forget(self, key: AttemptKey) -> None:
        self._note(key).unlink(missing_ok=True)
        self._claims.pop(key, None)

    def _note(self, key: AttemptKey) -> Path:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return self._folder.path / OWED / f"{name}.json"

    def _write_note(self, directive: Directive, claim: Claim, result: dict[str, Any] | None) -> None:
        content = {
            "key": directive.key,
            "claim": str(claim.path) if claim.path else None,
            "owner": claim.owner,
            "tenant_id": directive.tenant_id,
            "token": directive.callback_token,
            "result": result,
            "context": directive.context(),
        }
        note = self._note(directive.key)
        write_atomically(note, json.dumps(content).encode(), 0o600)
        _sync(note.parent)


def _create(path: Path, content: str) -> bool:
    """Whether this call created the file; of concurrent calls only one does."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    """A new name in a folder is durable only after the folder is synced."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_claim(path: Path | None) -> tuple[Seen, str]:
    """The state and owner of a claim; a missing or incomplete claim counts as another replica's work."""
    try:
        seen, _, owner = path.read_text("utf-8").partition(" ") if path is not None else ("", "", "")
        return Seen(seen), owner
    except (ValueError, FileNotFoundError, NotADirectoryError):
        return Seen.IN_WORK, ""
