"""The report of a run: one dictionary, used as JSON, and the same as text lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lucius.load.account import PERCENTILES, Account, ServicesAccount
from lucius.load.halt import Halt
from lucius.load.plan import LoadPlan

Ending = Literal["COMPLETE", "INCOMPLETE", "INTERRUPTED", "REFUSED", "UNREACHABLE"]

LATENCIES = (("acceptance", "acceptance"), ("job", "whole job"))
COLUMN = 11
BUSY_PERCENT = 80.0


def ending_of(halt: Halt, account: Account) -> Ending:
    """COMPLETE: the plan was carried out and every submitted job has ended, whatever its outcome."""
    if halt.reason is not None and halt.reason != "STALLED":
        return halt.reason
    return "COMPLETE" if account.submitted == account.ended_total and halt.reason is None else "INCOMPLETE"


def report_of(
    plan: LoadPlan,
    request_type: str,
    account: Account,
    services: ServicesAccount | None,
    halt: Halt,
    unsent: int,
    busy: float,
) -> dict[str, Any]:
    """Keys are never renamed or removed; new ones may be added. `busy` is this program's share of one CPU core."""
    mix = plan.services
    return {
        "ending": ending_of(halt, account),
        "plan": {
            "request_type": request_type,
            "jobs": plan.jobs_max,
            "seconds": plan.seconds,
            "in_flight": plan.in_flight,
            "rate": plan.rate,
            "tenants": plan.tenants,
            "drain_seconds": plan.drain_seconds,
            "seed": plan.seed,
            "mix": None if mix is None else {**vars(mix), "work_ms": list(mix.work_ms)},
        },
        "jobs": {
            "submitted": account.submitted,
            "accepted": account.accepted,
            "ended": dict(sorted(account.ended.items())),
            "ended_total": account.ended_total,
            "open": account.in_flight,
            "not_accepted": account.submitted - account.accepted,
            "unsent": unsent,
        },
        "seconds": round(account.seconds(), 3),
        "jobs_per_second": round(account.jobs_per_second(), 1),
        "in_flight_max": account.in_flight_max,
        "latency_ms": {"acceptance": account.acceptance.in_milliseconds(), "job": account.whole.in_milliseconds()},
        "look_ms": account.looks.in_milliseconds(),
        "busy_percent": round(busy * 100, 1),
        "refused": dict(sorted(account.refused.items())),
        "retried_calls": dict(sorted(account.retried_calls.items())),
        "retries": account.retries,
        "services": None if services is None else services.as_dict(),
    }


def lines_of(report: Mapping[str, Any]) -> list[str]:
    plan, jobs = report["plan"], report["jobs"]
    facts = [
        ("Load", _plan_text(plan)),
        ("Jobs", f"{jobs['submitted']:,} submitted, {jobs['accepted']:,} accepted, {jobs['ended_total']:,} ended"),
        ("Ended", counts_text(jobs["ended"])),
        ("Missing", _missing_text(jobs)),
        ("Time", f"{report['seconds']:,.2f} s: {report['jobs_per_second']:,.1f} jobs/s"),
        ("In flight", f"{report['in_flight_max']:,} at most"),
        ("Refused", f"{counts_text(report['refused'])}; all were sent again" if report["refused"] else "none"),
        ("Calls", f"{counts_text(report['retried_calls'])}; all were repeated" if report["retried_calls"] else ""),
        ("Retries", f"{report['retries']:,} attempts beyond the first of a step"),
        *_services_facts(report["services"]),
    ]
    shown = [f"{name:<{COLUMN}}{value}" for name, value in facts if value]
    return [*shown, "", *_latency_lines(report["latency_ms"]), *_caveats(report)]


def counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"


def _plan_text(plan: Mapping[str, Any]) -> str:
    parts = [str(plan["request_type"]), f"at most {plan['jobs']:,} jobs"]
    if plan["seconds"] is not None:
        parts.append(f"{plan['seconds']:g} s")
    parts.append(f"{plan['in_flight']:,} in flight")
    parts.append(f"{plan['rate']:g} jobs/s" if plan["rate"] is not None else "as fast as they end")
    return ", ".join([*parts, f"seed {plan['seed']}"])


def _missing_text(jobs: Mapping[str, Any]) -> str:
    parts = (("open", "still open"), ("not_accepted", "never accepted"), ("unsent", "due and never sent"))
    return ", ".join(f"{jobs[name]:,} {text}" for name, text in parts if jobs[name])


def _services_facts(services: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if services is None:
        return []
    others, twice = services["directives_of_others"], services["results_sent_twice"]
    verdicts = counts_text({name.replace("_", " "): count for name, count in services["verdicts"].items()})
    return [
        ("Directives", f"{services['directives']:,}" + (f", {others:,} from other runs" if others else "")),
        ("Answered", verdicts + (f"; {twice:,} RESULTs sent twice" if twice else "")),
        *((kind, counts_text(outcomes)) for kind, outcomes in services["callbacks"].items()),
    ]


def _latency_lines(latency_ms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = [*(f"p{number}" for number in PERCENTILES), "max"]
    lines = [f"{'Latency, ms':<14}" + "".join(f"{name:>11}" for name in names)]
    for key, label in LATENCIES:
        cells = (latency_ms[key][name] for name in names)
        lines.append(f"{label:<14}" + "".join(f"{'-' if cell is None else f'{cell:,.1f}':>11}" for cell in cells))
    return lines


def _caveats(report: Mapping[str, Any]) -> list[str]:
    """Reasons why the figures may not reflect the server alone."""
    caveats = []
    if report["look_ms"]["p50"] is not None:
        caveats.append(f"Job ends were polled every {report['look_ms']['p50']:,.0f} ms (p50) and count when seen.")
    if report["busy_percent"] >= BUSY_PERCENT:
        caveats.append(
            f"This program was busy for {report['busy_percent']:.0f} % of the time: it may have limited the result."
        )
    return ["", *caveats] if caveats else []
