"""Every role on PostgreSQL serves its management port, beside the others on one machine."""

from __future__ import annotations

import json
import time

from tests.cluster.conftest import StartRole
from tests.crash.management import addresses, ask, look, metrics_of

OF_ALL = {"ledger", "bus", "clock", "registry", "wakeups"}
OF_JOBS = OF_ALL | {"outbox", "dispatcher", "api_keys", "runbooks", "notifications"}
SAID_SECONDS_MAX = 30.0
ROLES = {
    "api": OF_JOBS,
    "reconciler": OF_JOBS,
    "runbooks": OF_ALL | {"runbooks"},
    "scheduler": OF_ALL | {"scheduler"},
}


def test_every_role_serves_health_readiness_and_metrics(start_role: StartRole) -> None:
    for role, names in ROLES.items():
        process = start_role(role)
        assert ask(addresses(process)[-1], "/healthz") == (200, '{"status":"ok"}')
        status, found = look(process)
        assert (status, found["status"], set(found["checks"])) == (200, "ok", names), found
        assert "lucius_process_cpu_seconds_total" in metrics_of(process)
        for name in ("lucius_jobs_finished_total", "lucius_retries_total", "lucius_timeouts_total"):
            assert name in metrics_of(process)
        for name in ("lucius_dispatch_lag_seconds_count", "lucius_outbox_backlog", "lucius_sweeper_actions_total"):
            assert name in metrics_of(process)
    assert "lucius_scheduler_ticks_total" in metrics_of(process)
    second = start_role("scheduler", LUCIUS_MANAGEMENT_PORT="0")
    both = addresses(second)
    assert len(set(both)) == 2
    for address, expected in zip(both, ("leads", "standby: another scheduler leads"), strict=True):
        wait_until_said(address, expected)


def wait_until_said(address: str, expected: str) -> None:
    end = time.monotonic() + SAID_SECONDS_MAX
    while (said := json.loads(ask(address, "/readyz")[1])["checks"]["scheduler"]["detail"]) != expected:
        assert time.monotonic() < end, said
        time.sleep(0.1)
