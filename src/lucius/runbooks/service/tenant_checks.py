"""What publishing checks besides the text: whose runbook it is, and what that tenant may use."""

from __future__ import annotations

from collections.abc import Iterator

from lucius.domain.errors import CallerError, Fault
from lucius.runbooks.core.definition.checks import step_lists
from lucius.runbooks.core.definition.model import Runbook
from lucius.runbooks.core.grants import Grants
from lucius.runbooks.service.scope import Scope
from lucius.yaml_text import YamlText, read_yaml

TENANTS_SHOWN_MAX = 5


def check_tenant(content: bytes, runbook: Runbook, scope: Scope, grants: Grants) -> None:
    """Raises RUNBOOK_INVALID with the line of every fault. `content` is the text of the runbook; a large one takes
    long: call it in a thread."""
    connection = None if runbook.source is None else runbook.source.connection
    refusals = {step.worker_id: grants.worker_refusal(runbook.name, step.worker_id) for step in runbook.steps}
    source_refusal = None if connection is None else grants.connection_refusal(runbook.name, connection)
    recipients = _refused_recipients(runbook, grants)
    if scope.sees(runbook.name) and source_refusal is None and not any(refusals.values()) and not recipients:
        return
    document = read_yaml(content)
    found: list[tuple[str, str]] = []
    if not scope.sees(runbook.name):  # Nothing is said about what another tenant may use.
        found.append(("/name", _name_advice(scope)))
    else:
        if source_refusal is not None:
            found.append(("/data_source/connection", source_refusal))
        found += _refused_steps(document, refusals)
        found += recipients
    raise CallerError([
        Fault("RUNBOOK_INVALID", pointer, f"line {document.line_of(pointer)}: {detail}") for pointer, detail in found
    ])  # fmt: skip


def _refused_steps(document: YamlText, refusals: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    for steps in step_lists(document.value):
        for pointer, step in steps.steps:
            refusal = refusals[step["worker_id"]]
            if refusal is not None:
                yield f"{pointer}/worker_id", refusal


def _refused_recipients(runbook: Runbook, grants: Grants) -> list[tuple[str, str]]:
    """Variables that recipients of notifications name are granted as connections are."""
    return [
        (f"/notifications/recipients/{place}/{field}", refusal)
        for place, recipient in enumerate(runbook.notifications.recipients)
        for field, variable in recipient.variables.items()
        if (refusal := grants.connection_refusal(runbook.name, variable)) is not None
    ]


def _name_advice(scope: Scope) -> str:
    tenants = sorted(scope.tenants or ())
    if not tenants:
        return "this key or token has no tenant, so it cannot publish runbooks"
    named = " or ".join(f"{tenant}.NAME" for tenant in tenants[:TENANTS_SHOWN_MAX])
    return f"this key or token publishes only runbooks of its own tenants: name it {named}"
