"""Attempts as files: a claim in the attempt's workspace folder, and a note of this instance's unanswered RESULTs.

Every replica that shares the workspace sees the claim, so a directive delivered to two of them is worked on once,
wherever they run: the workspace may be a shared folder, or in Azure Blob. The claim names its owner, because a note is
written before its claim and may remain when another replica won the claim. Notes are in the state folder, with their
callback tokens, and read only by their owner.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from lucius.azure.blob_errors import BlobFailed
from lucius.platform.claims import ClaimBlob, ClaimFile, ClaimPlace, claim_place
from lucius.platform.directive import AttemptKey, Directive
from lucius.platform.errors import ServiceUnusable, StepFailed
from lucius.platform.idempotency_store import INTERRUPTED, Owed, Seen, StoreFailed
from lucius.platform.refs import blob_of
from lucius.platform.remote_files import NO_ACCOUNT, RemoteFiles
from lucius.platform.safe_files import sync_folder, write_atomically
from lucius.platform.state_folder import StateFolder

OWED = "owed"


class Claim(NamedTuple):
    place: ClaimPlace | None
    """`None` if the workspace_ref is unusable: such an attempt fails before it writes anything."""
    owner: str

    def write(self, seen: Seen) -> None:
        if self.place is not None:
            self.place.replace(f"{seen} {self.owner}".encode())

    def read(self) -> tuple[Seen, str]:
        return (Seen.IN_WORK, "") if self.place is None else self.place.read()


class WorkspaceStore:
    def __init__(self, folder: Path, remote: RemoteFiles | None = None) -> None:
        self._folder = StateFolder(folder)
        self._remote = remote or RemoteFiles()
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
        except (OSError, BlobFailed) as error:
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
        except BlobFailed as error:
            self._folder.release()
            raise ServiceUnusable(f"claims in the workspace cannot be read: {error}") from error
        except ServiceUnusable:
            self._folder.release()
            raise

    def _read_note(self, note: Path) -> Owed | None:
        try:
            content = json.loads(note.read_bytes())
            key, result = AttemptKey(*content["key"]), content["result"]
            claim = Claim(self._place(content["claim"]) if content["claim"] else None, content["owner"])
            sent = result or {**INTERRUPTED, **content.get("context", {})}
            owed = Owed(key, content["tenant_id"], content["token"], sent)
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceUnusable(f"{note} is damaged: {error}; move it away to start without it") from error
        if result is None and claim.place is not None and claim.read()[1] != claim.owner:
            note.unlink()  # Died between note and claim: this instance never began the attempt.
            return None
        self._claims[key] = claim
        return owed

    def _begin(self, directive: Directive) -> Seen:
        held = self._claims.get(directive.key)
        if held is not None:
            return held.read()[0]
        place = self._claim_place(directive)
        if place is not None and place.exists():
            return place.read()[0]
        claim = Claim(place, self._owner_before(directive.key) or secrets.token_hex(16))
        self._write_note(directive, claim, None)
        if place is not None and not place.create(f"{Seen.IN_WORK} {claim.owner}".encode()):
            seen, owner = place.read()
            if owner != claim.owner:
                self._note(directive.key).unlink(missing_ok=True)
                return seen
        self._claims[directive.key] = claim
        return Seen.NEW

    def _owner_before(self, key: AttemptKey) -> str | None:
        """As whom this instance tried to claim the attempt before: it may have, although it was not told."""
        try:
            return str(json.loads(self._note(key).read_bytes())["owner"])
        except FileNotFoundError:
            return None

    def _claim_place(self, directive: Directive) -> ClaimPlace | None:
        try:
            return claim_place(directive, self._remote)
        except StepFailed:
            return None

    def _place(self, text: str) -> ClaimPlace:
        """As a note has it. Raises `ServiceUnusable` for a blob, if there is no storage account any more."""
        if not text.startswith("blob:"):
            return ClaimFile(Path(text))
        if self._remote.blobs is None:
            raise ServiceUnusable(f"attempts of the last start are claimed in Azure Blob, and {NO_ACCOUNT}")
        return ClaimBlob(blob_of(text, "claim", ""), self._remote.blobs)

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
        if claim is not None and claim.place is not None:
            claim.place.delete()
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
            "claim": str(claim.place) if claim.place else None,
            "owner": claim.owner,
            "tenant_id": directive.tenant_id,
            "token": directive.callback_token,
            "result": result,
            "context": directive.context(),
        }
        note = self._note(directive.key)
        write_atomically(note, json.dumps(content).encode(), 0o600)
        sync_folder(note.parent)
