"""Metrics by tenant, for tenants of the registry: all others are counted together, as `other`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucius.ports.ledger import Change
from lucius.telemetry.event_counts import OUTCOMES, TIMEOUTS
from lucius.telemetry.tallies import Tallies

TENANTS_MAX = 500
"""Tenants with series of their own, in the order in which they occur."""
OTHER = "other"
UNCOUNTED = frozenset({"ATTEMPT_CREATED", "PUBLISHED", "ACK"})
"""The events of every attempt that has no trouble."""


class TenantCounts:
    def __init__(self, tallies: Tallies, is_registered: Callable[[str], bool]) -> None:
        self._is_registered = is_registered
        self._named: set[str] = set()
        counter = tallies.counter
        self._accepted = counter("lucius_tenant_jobs_accepted", "Commands that became jobs, by tenant.", ("tenant",))
        self._refused = counter("lucius_tenant_commands_refused", "Commands refused, by tenant.", ("tenant",))
        self._finished = counter("lucius_tenant_jobs_finished", "Jobs that ended, by tenant.", ("tenant", "outcome"))
        self._seconds = counter(
            "lucius_tenant_job_seconds", "From acceptance to the end of all jobs that ended, by tenant.", ("tenant",)
        )
        self._retries = counter("lucius_tenant_retries", "Retries set, by tenant.", ("tenant",))
        self._timeouts = counter("lucius_tenant_timeouts", "Deadlines missed, by tenant.", ("tenant",))

    def refused(self, tenant_id: str | None) -> None:
        self._refused.add(1, (OTHER if tenant_id is None else self._name(tenant_id),))

    def count(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not change.events:
                continue
            spec = change.after.spec
            labels = (self._name(spec.tenant_id),)
            for event in change.events:
                kind = event.type
                if kind in UNCOUNTED:
                    continue
                if kind == "ACCEPTED":
                    self._accepted.add(1, labels)
                elif kind in OUTCOMES:
                    self._finished.add(1, (*labels, OUTCOMES[kind]))
                    self._seconds.add(max(0, event.at - spec.created_at) / 1000, labels)
                if "retry_at" in event.data:
                    self._retries.add(1, labels)
                is_late = kind == "JOB_FAILED" and event.data.get("code") == "DEADLINE_EXCEEDED"
                if kind in TIMEOUTS or is_late:
                    self._timeouts.add(1, labels)

    def _name(self, tenant_id: str) -> str:
        if tenant_id in self._named:
            return tenant_id
        if len(self._named) >= TENANTS_MAX or not self._is_registered(tenant_id):
            return OTHER
        self._named.add(tenant_id)
        return tenant_id
