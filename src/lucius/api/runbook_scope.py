"""The runbooks and batches that a caller sees: decided here for every call, from the parameters in its path.

A call whose path names a runbook (`name`) or a batch (`batch_id`) is checked before its handler runs, so handlers of
such calls know nothing of tenants. What has no such parameter (lists, publishing, creating a batch) passes `scope_of`
the caller to its use case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lucius.app_context import AppContext
from lucius.auth import Principal
from lucius.domain.errors import CallerError
from lucius.runbooks.core.answers import ID_MAX
from lucius.runbooks.core.definition.names import check_name
from lucius.runbooks.service.scope import Scope, missing, missing_batch

RUNBOOK, BATCH = "name", "batch_id"
"""The parameters of paths that name a runbook and a batch, in the API and in the console."""
ID_DIGITS_MAX = len(str(ID_MAX))


def scope_of(principal: Principal) -> Scope:
    return Scope(principal.tenants)


async def check_path(context: AppContext, principal: Principal, parameters: Mapping[str, Any]) -> None:
    """Raises NOT_FOUND, as for what does not exist, if the path names what the caller does not see."""
    if principal.tenants is None:
        return
    if RUNBOOK in parameters:
        scope_of(principal).check_runbook(read_runbook_name(parameters[RUNBOOK]))
    if BATCH in parameters:
        await context.runbooks.queries.check_batch(read_batch_id(parameters[BATCH]), scope_of(principal))


def read_runbook_name(text: str) -> str:
    try:
        return check_name(text)
    except ValueError:
        raise missing(text[:80]) from None


def read_batch_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > ID_DIGITS_MAX:
        raise CallerError.of("NOT_FOUND", f"there is no batch {text[:40]!r}: a batch's id is a number")
    if not int(text):
        raise missing_batch(0)
    return int(text)
