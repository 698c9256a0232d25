"""Webhooks: a row in the core of their job, and a hint by tenant and time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from lucius.azure.keys import instant, key, part, prefix_end
from lucius.azure.tables import Put, Row, TableConflict, TableNotFound
from lucius.domain.time import Instant, after
from lucius.ledgers.tables import hints, rows
from lucius.ledgers.tables.layouts import SHARDS, JobRef, shard_of
from lucius.ledgers.tables.store import Store
from lucius.ports.ledger import Webhook

ALL_HINTS_MAX = 1_000_000
HINT_SECONDS_MAX = 60.0
"""How long a hint may be without its webhook."""


class Webhooks:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def due(self, now: Instant, after_tenant: str, tenants_max: int, per_tenant_max: int) -> list[Webhook]:
        by_tenant: dict[str, list[Row]] = {}

        async def of_shard(shard: int) -> None:
            middle = prefix_end(hints.webhooks_of(after_tenant)) if after_tenant else ""
            await self._collect(shard, now, (middle, None), tenants_max, per_tenant_max, by_tenant)
            if middle:
                await self._collect(shard, now, ("", middle), tenants_max, per_tenant_max, by_tenant)

        await self._store.each(of_shard, range(SHARDS))
        tenants = sorted(by_tenant, key=lambda tenant: (part(tenant) <= part(after_tenant), part(tenant)))
        found: list[Webhook] = []
        for tenant_id in tenants:
            if tenants_max <= 0:
                break
            listed = sorted(by_tenant[tenant_id], key=lambda row: row.key)
            pending = await self._store.each(lambda hint: self._pending(hint, now), listed)
            due = [one for one in pending if one is not None and one.next_at <= now][:per_tenant_max]
            found += due
            tenants_max -= bool(due)
        return found

    async def _collect(
        self,
        shard: int,
        now: Instant,
        between: tuple[str, str | None],
        tenants_max: int,
        per_tenant_max: int,
        by_tenant: dict[str, list[Row]],
    ) -> None:
        """From one tenant to the next, however many webhooks each has."""
        first, end = between
        seen = 0
        while seen < tenants_max:
            page = await self._store.read_hints("WEBHOOK", first, end, limit=1, shards=[shard])
            if not page:
                return
            tenant_id = page[0].values["tenant_id"]
            prefix = hints.webhooks_of(tenant_id)
            last = key(prefix, instant(now + 1))
            listed = await self._store.read_hints(prefix, "", last, limit=per_tenant_max, shards=[shard])
            if listed:
                by_tenant.setdefault(tenant_id, []).extend(listed)
                seen += 1
            first = prefix_end(prefix)

    async def _pending(self, hint: Row, now: Instant) -> Webhook | None:
        found = await self._read(JobRef(hint.values["jobId"], hint.values["tenant_id"]))
        if found is None:
            # Its job ends just now, or a crash has left the hint: of an end that was never written, or of a job that
            # was pruned.
            if after(_time_of(hint), HINT_SECONDS_MAX) <= now:
                await self._store.write_index({}, {shard_of(hint.values["jobId"]): [hint.key]})
            return None
        webhook, row = found
        if row.values["status"] != "PENDING":
            await self._store.write_index({}, {shard_of(webhook.job_id): [hint.key]})
            return None
        return webhook if hints.webhook_key(webhook) == hint.key else None

    async def claim(self, job_ids: Sequence[str], now: Instant, claim_until: Instant) -> set[str]:
        async def claim(ref: JobRef) -> str | None:
            found = await self._read(ref)
            if found is None:
                return None
            webhook, row = found
            if row.values["status"] != "PENDING" or not 0 < webhook.next_at <= now:
                return None
            is_written = await self._write(ref, webhook, replace(webhook, next_at=claim_until), row.etag)
            return ref.job_id if is_written else None

        claimed = await self._store.each(claim, await self._store.refs(job_ids))
        return {job_id for job_id in claimed if job_id is not None}

    async def done(self, webhook: Webhook, delivered: bool) -> None:
        for ref in await self._store.refs([webhook.job_id]):
            found = await self._read(ref)
            if found is not None:
                await self._write(ref, found[0], replace(webhook, next_at=0) if delivered else webhook, None)

    async def shorten(self, latest: Sequence[Instant]) -> None:
        """Hints at the later time are left to be found outlived."""

        async def shorten(hint: Row) -> None:
            ref = JobRef(hint.values["jobId"], hint.values["tenant_id"])
            found = await self._read(ref)
            if found is None or found[1].values["status"] != "PENDING":
                return
            webhook, row = found
            allowed = latest[min(webhook.attempts, len(latest) - 1)] + webhook.asked_wait_ms
            if webhook.next_at > allowed:
                await self._write(ref, None, replace(webhook, next_at=allowed), row.etag)

        earliest = min(latest)
        listed = await self._store.read_hints("WEBHOOK", limit=ALL_HINTS_MAX)
        await self._store.each(shorten, [hint for hint in listed if _time_of(hint) > earliest])

    async def _write(self, ref: JobRef, before: Webhook | None, webhook: Webhook, etag: str | None) -> bool:
        shard, is_pending = shard_of(ref.job_id), webhook.next_at > 0
        values = {"jobId": ref.job_id, "tenant_id": webhook.tenant_id}
        if is_pending:
            await self._store.write_index({shard: [Put(hints.webhook_key(webhook), values)]}, {})
        place, name = self._store.layout.core(ref), self._store.layout.core_key(ref, "WEBHOOK")
        try:
            row = rows.webhook_values(webhook, is_pending)
            await self._store.write(place, [Put(name, row, etag)], ref.job_id)
        except (TableConflict, TableNotFound):
            return False
        if before is not None and before.next_at != webhook.next_at and before.next_at > 0:
            await self._store.write_index({}, {shard: [hints.webhook_key(before)]})
        return True

    async def _read(self, ref: JobRef) -> tuple[Webhook, Row] | None:
        place, name = self._store.layout.core(ref), self._store.layout.core_key(ref, "WEBHOOK")
        row = await self._store.table(place).get(place.partition, name)
        return None if row is None else (rows.read_webhook(await self._store.unpack(row.values)), row)


def _time_of(hint: Row) -> Instant:
    return int(hint.key.split(":")[2])
