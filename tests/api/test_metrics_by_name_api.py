"""Metrics of a whole application by tenant, for registered ones, and by runbook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.api.runbook_client import PLAIN, QUICK, RunbookCaller, csv_of


async def test_registered_tenants_and_runbooks_have_series_of_their_own(open_api: Any, registry_folder: Path) -> None:
    (registry_folder / "tenants" / "acme.yaml").write_text("id: acme\n")
    api = await open_api(registry=str(registry_folder), **QUICK)
    for tenant in ("acme", "acme", "not-registered"):
        await api.accepted(tenant_id=tenant)
    await api.work()
    assert (await api.submit(tenant_id="acme", request_type="NOPE")).status_code == 422
    caller = RunbookCaller(api)
    await caller.publish(PLAIN)
    made = await caller.post("/v1/batches", {"runbook": "plain", "csv": csv_of("ann", "ben")}, 201)
    await caller.until(made["batch_id"], lambda batch: batch["status"] == "active")
    shown = (await api.look("/metrics")).text
    counted = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert float(counted['lucius_tenant_jobs_accepted_total{tenant="acme"}']) == 2
    assert float(counted['lucius_tenant_jobs_accepted_total{tenant="other"}']) == 1
    assert float(counted['lucius_tenant_commands_refused_total{tenant="acme"}']) == 1
    ended = [name for name in counted if name.startswith("lucius_tenant_jobs_finished_total") and "SUCCEEDED" in name]
    assert sum(float(counted[name]) for name in ended) == 1
    assert "not-registered" not in shown
    assert float(counted['lucius_runbook_batches_open_by_runbook{runbook="plain"}']) == 1
