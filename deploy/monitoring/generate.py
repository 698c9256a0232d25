"""Makes the Grafana dashboards in `dashboards/`: `make dashboards`. A test compares them with what is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "dashboards"
COLUMNS, HEIGHT = 2, 8
GRID_WIDTH = 24


class Panel(NamedTuple):
    title: str
    unit: str
    queries: dict[str, str]
    """What each line is called, and the expression."""


def quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket[5m])))"


OVERVIEW = [
    Panel("Jobs accepted and ended", "reqps", {
        "accepted": "sum(rate(lucius_jobs_accepted_total[5m]))",
        "{{outcome}}": "sum by (outcome) (rate(lucius_jobs_finished_total[5m]))",
    }),
    Panel("Time of a job, median and 95 %", "s", {
        "median {{outcome}}": quantile(0.5, "lucius_job_seconds", "outcome"),
        "95 % {{outcome}}": quantile(0.95, "lucius_job_seconds", "outcome"),
    }),
    Panel("Jobs in flight", "short", {"{{scope}}": 'max by (scope) (lucius_inflight{scope=~"global|mode:.*"})'}),
    Panel("Commands refused", "reqps", {"{{code}}": "sum by (code) (rate(lucius_commands_refused_total[5m]))"}),
    Panel("Retries by cause", "reqps", {"{{cause}}": "sum by (cause) (rate(lucius_retries_total[5m]))"}),
    Panel("Deadlines missed", "reqps", {"{{kind}}": "sum by (kind) (rate(lucius_timeouts_total[5m]))"}),
    Panel("Time of a step from its ACK to its RESULT, 95 %", "s", {
        "{{step_type}}": quantile(0.95, "lucius_step_ack_to_result_seconds", "step_type"),
    }),
    Panel("Dead letters", "short", {"an hour": "sum(increase(lucius_dead_letters_total[1h]))"}),
]  # fmt: skip
LANES = [
    Panel("Directives that wait, by service", "short", {
        "{{service}}": 'sum by (service) (max by (lane, service) (lucius_lane_depth{state="ready"}))',
    }),
    Panel("Age of the oldest, by lane", "s", {"lane {{lane}}": "max by (lane) (lucius_lane_oldest_seconds)"}),
    Panel("In work", "short", {
        "{{service}}": 'sum by (service) (max by (lane, service) (lucius_lane_depth{state="locked"}))',
    }),
    Panel("Delivered more than once", "short", {
        "{{service}}": "sum by (service) (max by (lane, service) (lucius_lane_redelivered))",
    }),
    Panel("Dead on the bus", "short", {
        "{{service}}": 'sum by (service) (max by (lane, service) (lucius_lane_depth{state="dead"}))',
    }),
    Panel("Not yet handed to the bus", "short", {
        "{{waits_for}}": "sum by (waits_for) (max by (lane, service, waits_for) (lucius_lane_unsent))",
        "outbox": "max(lucius_outbox_backlog)",
    }),
    Panel("Instances that ask for work", "short", {"{{service}}": "max by (service) (lucius_lane_consumers)"}),
    Panel("Time from the bus to the ACK, 95 %", "s", {
        "{{step_type}}": quantile(0.95, "lucius_step_dispatch_to_ack_seconds", "step_type"),
    }),
]  # fmt: skip
TENANTS = [
    Panel("In flight against the limit", "percentunit", {
        "{{scope}}": 'max by (scope) (lucius_inflight{scope=~"tenant:.*"} / lucius_inflight_limit{scope=~"tenant:.*"})',
    }),
    Panel("Accepted", "reqps", {"{{tenant}}": "sum by (tenant) (rate(lucius_tenant_jobs_accepted_total[5m]))"}),
    Panel("Failed for good", "reqps", {
        "{{tenant}}": 'sum by (tenant) (rate(lucius_tenant_jobs_finished_total{outcome="FAILED_FINAL"}[5m]))',
    }),
    Panel("Refused", "reqps", {"{{tenant}}": "sum by (tenant) (rate(lucius_tenant_commands_refused_total[5m]))"}),
    Panel("Average time of a job", "s", {
        "{{tenant}}": "sum by (tenant) (rate(lucius_tenant_job_seconds_total[15m]))"
                      " / sum by (tenant) (rate(lucius_tenant_jobs_finished_total[15m]))",
    }),
    Panel("Retries", "reqps", {"{{tenant}}": "sum by (tenant) (rate(lucius_tenant_retries_total[5m]))"}),
]  # fmt: skip
RUNBOOKS = [
    Panel("Executions by state", "reqps", {"{{status}}": "sum by (status) (rate(lucius_runbook_steps_total[5m]))"}),
    Panel("Steps that workers hold", "short", {
        "{{runbook}}": "max by (runbook) (lucius_runbook_steps_in_flight_by_runbook)",
    }),
    Panel("Batches that have not ended", "short", {
        "{{runbook}}": "max by (runbook) (lucius_runbook_batches_open_by_runbook)",
    }),
    Panel("Workers' results", "reqps", {"{{outcome}}": "sum by (outcome) (rate(lucius_runbook_results_total[5m]))"}),
    Panel("Rounds of the scheduler", "reqps", {
        "{{outcome}}": "sum by (outcome) (rate(lucius_scheduler_ticks_total[5m]))",
    }),
    Panel("Reads of data sources", "reqps", {
        "{{outcome}}": "sum by (outcome) (rate(lucius_source_reads_total[15m]))",
    }),
    Panel("Dead messages", "short", {
        "{{topic}} {{subscription}}": "max by (topic, subscription) (lucius_runbook_dead_messages)",
    }),
    Panel("Messages not yet on the bus", "s", {"oldest": "max(lucius_runbook_outbox_oldest_seconds)"}),
]  # fmt: skip
PARTS = [
    Panel("Turns: inputs, median and 95 %", "short", {
        "median": "histogram_quantile(0.5, sum by (le) (rate(lucius_turn_inputs_bucket[5m])))",
        "95 %": "histogram_quantile(0.95, sum by (le) (rate(lucius_turn_inputs_bucket[5m])))",
    }),
    Panel("Turns: time, 95 %", "s", {
        "95 %": "histogram_quantile(0.95, sum by (le) (rate(lucius_turn_seconds_bucket[5m])))",
    }),
    Panel("Failures in the background", "reqps", {"{{what}}": "sum by (what) (rate(lucius_failures_total[5m]))"}),
    Panel("Bus out of reach", "short", {"circuit open": "max(lucius_circuit_open)"}),
    Panel("Webhooks", "reqps", {"{{outcome}}": "sum by (outcome) (rate(lucius_webhooks_total[5m]))"}),
    Panel("Clock against the database", "s", {"{{instance}}": "lucius_clock_skew_seconds"}),
    Panel("Memory", "bytes", {"{{instance}}": "lucius_process_resident_memory_bytes"}),
    Panel("Processor", "percentunit", {"{{instance}}": "rate(lucius_process_cpu_seconds_total[5m])"}),
    Panel("Calls held open", "short", {"{{kind}}": "sum by (kind) (lucius_waits_held)"}),
    Panel("Drift repaired", "short", {"{{kind}}": "sum by (kind) (increase(lucius_repairs_total[1h]))"}),
]  # fmt: skip
DASHBOARDS = {"overview": OVERVIEW, "lanes": LANES, "tenants": TENANTS, "runbooks": RUNBOOKS, "parts": PARTS}


def dashboard(name: str) -> str:
    panels = [_panel(number, panel) for number, panel in enumerate(DASHBOARDS[name])]
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    made: dict[str, Any] = {
        "uid": f"lucius-{name}", "title": f"LUCIUS: {name}", "tags": ["lucius"], "schemaVersion": 39, "editable": True,
        "timezone": "browser", "time": {"from": "now-6h", "to": "now"}, "refresh": "30s",
        "templating": {"list": [source]}, "panels": panels,
        "links": [{"type": "dashboards", "tags": ["lucius"], "title": "LUCIUS", "asDropdown": True}],
    }  # fmt: skip
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    width = GRID_WIDTH // COLUMNS
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": source}
        for index, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number + 1, "type": "timeseries", "title": panel.title, "datasource": source, "targets": targets,
        "gridPos": {"x": column * width, "y": row * HEIGHT, "w": width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }  # fmt: skip


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(dashboard(each))
