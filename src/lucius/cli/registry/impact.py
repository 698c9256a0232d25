"""The impact of protocols on a running server, asked for and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from lucius.cli.failures import Refused, Unreachable
from lucius.cli.output.formatting import counted, text_of
from lucius.cli.output.printing import show_lines
from lucius.cli.registry.running import RegistryFaults
from lucius.client.calls import admin as admin_calls

if TYPE_CHECKING:
    from lucius.cli.connection import Connection

PAYLOADS_MAX = 1_000
REFUSALS_SHOWN = 10
UNKNOWN = "The impact is unknown, and nothing was changed: name a server with --url, or pass --no-impact."
payloads_option = click.option(
    "--payloads",
    type=click.IntRange(0, PAYLOADS_MAX),
    default=200,
    show_default=True,
    help="How many of the newest payloads to try.",
)
no_impact_option = click.option("--no-impact", is_flag=True, help="Do not ask the server for the impact preview.")


def ask_impact(connection: Connection, texts: Sequence[str], payloads: int) -> list[dict[str, Any]]:
    """A preview for each protocol."""
    if not texts:
        return []
    try:
        with connection.open() as client:
            return [client.run(admin_calls.preview_protocol(text, payloads=payloads)) for text in texts]
    except Unreachable as error:
        raise Unreachable(f"{error.message}\n{UNKNOWN}") from error
    except Refused as error:
        raise RegistryFaults([*error.message.splitlines(), UNKNOWN]) from error


def show_impact(impact: Sequence[Mapping[str, Any]]) -> None:
    for preview in impact:
        show_lines(impact_lines(preview))


def impact_lines(preview: Mapping[str, Any]) -> list[str]:
    name, current = text_of(preview.get("id")), preview.get("current_version")
    in_force = "no version is in force" if current is None else f"version {text_of(current)} is in force"
    lines = [f"Impact of {name} version {text_of(preview.get('version'))} ({in_force}):"]
    lines += [f"  {text_of(problem)}" for problem in preview.get("problems") or ()]
    in_flight = preview.get("in_flight") or []
    counts = ", ".join(
        f"{counted(int(one.get('jobs') or 0), 'job')} of version {text_of(one.get('version'))}" for one in in_flight
    )
    more = "; only the newest were counted" if preview.get("in_flight_cut_off") else ""
    lines.append(f"  In flight: {counts or 'no jobs'}{more}.{' They keep their version.' if counts else ''}")
    lines += _dropped(preview)
    tried, refused = int(preview.get("payloads") or 0), int(preview.get("refused") or 0)
    lines.append(f"  Of the last {counted(tried, 'payload')}, {refused} would be refused{':' if refused else '.'}")
    refusals = preview.get("refusals") or []
    for refusal in refusals[:REFUSALS_SHOWN]:
        lines.append(f"    job {text_of(refusal.get('jobId'))} of {text_of(refusal.get('tenant_id'))}")
        lines += [
            f"      {text_of(fault.get('pointer'))}: {text_of(fault.get('detail'))}"
            for fault in refusal.get("faults") or ()
        ]
    if refused > REFUSALS_SHOWN:
        lines.append(f"    and {refused - REFUSALS_SHOWN} more; -o json lists up to 100")
    return lines


def _dropped(preview: Mapping[str, Any]) -> list[str]:
    lines = []
    if types := preview.get("dropped_request_types"):
        lines.append(f"  No longer served: {text_of(', '.join(types))}.")
    if services := preview.get("dropped_services"):
        names = text_of(", ".join(services))
        lines.append(f"  No longer used: service {names}. Jobs in flight that need it wait, unless a protocol has it.")
    return lines
