"""Idempotency: one row for each claim, written before its job.

A claim whose job does not exist belongs to a command that is being accepted right now, or to one whose process crashed.
Whoever meets one waits for the job for a short time. Then a row is written in the job's place that keeps it from being
created (`VOID`), and the claim is taken over: the job exists or will never exist, so there is one job for each claim.
"""

from __future__ import annotations

import asyncio

from lucius.azure.tables import Delete, Insert, Put, Row, TableConflict, TableNotFound, TableUnavailable
from lucius.ledgers.sql.rows import claim_key
from lucius.ledgers.tables.layouts import JobRef, shard_of
from lucius.ledgers.tables.rows import VOID
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import Claim, Duplicate

WAIT_SECONDS = 5.0
"""How long a command waits for the job of an equal one."""
PAUSES_SECONDS = (0.02, 0.05, 0.1, 0.2)
TRIES_MAX = 200


def void_key(job_id: str) -> str:
    """The hint by which a void job is pruned. Ids begin with the time."""
    return f"VOID:{job_id}"


class _Wait:
    """Pauses, up to a time."""

    def __init__(self, seconds: float) -> None:
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._pauses = iter(PAUSES_SECONDS)

    async def go_on(self) -> bool:
        if asyncio.get_running_loop().time() >= self._deadline:
            return False
        await asyncio.sleep(next(self._pauses, PAUSES_SECONDS[-1]))
        return True


class Claims:
    def __init__(self, store: Store, wait_seconds: float = WAIT_SECONDS) -> None:
        self._store = store
        self._wait_seconds = wait_seconds

    async def take(self, claim: Claim, ref: JobRef) -> Duplicate | None:
        """Claim for this job; or else the job that has the claim."""
        name = claim_key(claim.key)
        place = self._store.layout.claims(name)
        values = {"jobId": ref.job_id, "tenant_id": ref.tenant_id, "idempotency_hash": claim.hash}
        table = self._store.table(place)
        waits: dict[str, _Wait] = {}
        for _ in range(TRIES_MAX):
            try:
                await table.write(place.partition, [Insert(name, values)])
                return None
            except TableConflict:
                row = await table.get(place.partition, name)
            if row is None:
                continue
            if row.values["jobId"] == ref.job_id:
                return None  # Of an earlier call that never learned of it.
            holder = JobRef(row.values["jobId"], row.values["tenant_id"])
            status = await self._status(holder)
            if status not in (None, VOID):
                return Duplicate(holder.job_id, row.values["idempotency_hash"], str(status))
            wait = waits.setdefault(holder.job_id, _Wait(self._wait_seconds))
            if status is None and await wait.go_on():
                continue
            try:
                await self._take_over(row, values, name)
            except (TableConflict, TableNotFound):
                continue
            return None
        raise TableUnavailable(f"{table.place}: too many commands want the same claim")

    async def _take_over(self, row: Row, values: dict[str, str], name: str) -> None:
        holder = JobRef(row.values["jobId"], row.values["tenant_id"])
        if await self.make_void(holder):
            place = self._store.layout.claims(name)
            await self._store.table(place).write(place.partition, [Put(name, values, row.etag)])
        else:
            raise TableConflict(f"job {holder.job_id} exists now")

    async def make_void(self, ref: JobRef) -> bool:
        """Keep a job from being created; False if it exists."""
        layout = self._store.layout
        place, key = layout.core(ref), layout.core_key(ref)
        values = {"jobId": ref.job_id, "tenant_id": ref.tenant_id}
        await self._store.write_index({shard_of(ref.job_id): [Put(void_key(ref.job_id), values)]}, {})
        try:
            await self._store.table(place).write(place.partition, [Insert(key, {"status": VOID, "jobId": ref.job_id})])
        except TableConflict:
            found = await self._store.table(place).get(place.partition, key, ["status"])
            return found is not None and found.values["status"] == VOID
        return True

    async def _status(self, ref: JobRef) -> str | None:
        place = self._store.layout.core(ref)
        row = await self._store.table(place).get(place.partition, self._store.layout.core_key(ref), ["status"])
        return None if row is None else str(row.values["status"])

    async def drop(self, name: str, job_id: str) -> None:
        """Give up a claim, if it is still this job's."""
        place = self._store.layout.claims(name)
        table = self._store.table(place)
        row = await table.get(place.partition, name, ["jobId"])
        if row is None or row.values["jobId"] != job_id:
            return
        try:
            await table.write(place.partition, [Delete(name, row.etag)])
        except (TableConflict, TableNotFound):
            return  # Somebody has taken it over.

    async def holder(self, key: bytes) -> JobRef | None:
        name = claim_key(key)
        place = self._store.layout.claims(name)
        row = await self._store.table(place).get(place.partition, name, ["jobId", "tenant_id"])
        return None if row is None else JobRef(row.values["jobId"], row.values["tenant_id"])
