"""The authorization matrix: every route under every credential, and other tenants' jobs under everybody's."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import cycle
from typing import Any, NamedTuple

import aiohttp
from tests.attack.credentials import OWN, Credential
from tests.attack.targets import Target

from lucius.api.examples import EXAMPLES
from lucius.api.operation import Operation
from lucius.api.operations import OPERATIONS

BODIES: dict[str, Any] = deepcopy(EXAMPLES)
"""A copy of our own, made before any test runs: nobody else may change what this matrix sends."""
UNKNOWN_JOB = "018f6b1e-7c00-7000-8000-0123456789ab"
PATH_VALUES = {
    "job_id": UNKNOWN_JOB,
    "protocol_id": "OCR",
    "name": "nobody",
    "batch_id": "999999",
    "phase": "nothing",
    "operation_id": UNKNOWN_JOB,
    "rehearsal_id": UNKNOWN_JOB,
    "notification_id": "018f6b1e7c00-1",
}
OF_OWN_TENANT = ("submitCommand", "validateCommand", "testNotification")
"""Whose body names the tenant OWN."""
SERVICE, WORKER, KEY = "service", "worker", "key"


class Access(NamedTuple):
    role: str | None
    """None: anybody, without a credential."""
    on_all_tenants: bool = False
    limit: str | None = None
    """What a limited key is held to here: the service it names, or the worker. KEY: no token serves, only a key."""


_READ, _OPERATE = Access("read"), Access("operate")
_READ_ALL, _OPERATE_ALL = Access("read", True), Access("operate", True)

ACCESS: dict[str, Access] = {
    **dict.fromkeys(("submitCommand", "validateCommand", "submitCommands", "getCommand"), Access("submit")),
    **dict.fromkeys(("listJobs", "getJob", "getSteps", "getEvents", "listProtocols", "getProtocol"), _READ),
    **dict.fromkeys(("getOverview", "listFailures", "listAudit", "listTenants", "getProtocolFigures"), _READ),
    **dict.fromkeys(("listNotifications", "getNotification", "getArchivedJob"), _READ),
    "pruneJobs": Access("admin", True),
    "testNotification": _OPERATE,
    "createConsoleLink": Access("read", limit=KEY),
    **dict.fromkeys(("cancelJob", "pauseJob", "resumeJob", "redriveJob"), _OPERATE),
    **dict.fromkeys(("listOperations", "getOperation", "listOutcomes"), _READ),
    **dict.fromkeys(("createOperation", "previewOperation"), _OPERATE),
    **dict.fromkeys(("pauseOperation", "resumeOperation", "abandonOperation"), _OPERATE),
    **dict.fromkeys(("ackCallback", "resultCallback", "heartbeatCallback", "callbackBatch"), Access(None)),
    **dict.fromkeys(("retryOutbox", "dismissDeadLetter", "previewProtocol"), _OPERATE_ALL),
    **dict.fromkeys(("listOutbox", "listDeadLetters", "listLanes", "listWorkers", "listLaneHistory"), _READ_ALL),
    **dict.fromkeys(("listRunbooks", "validateRunbook", "getRunbookSchema", "getRunbook", "diffRunbook"), _READ),
    **dict.fromkeys(("getRunbookEvents", "listBatches", "getBatch", "listMembers", "getBatchEvents"), _READ),
    **dict.fromkeys(("exportBatch", "getGrid"), _READ),
    **dict.fromkeys(("publishRunbook", "retireRunbook", "previewRunbook"), Access("admin")),
    **dict.fromkeys(("stopRunbook", "startRunbook", "confirmRunbook", "dryRunRunbook", "createBatch"), _OPERATE),
    "rehearseRunbook": _OPERATE,
    **dict.fromkeys(("approvePhase", "refusePhase"), _OPERATE),
    **dict.fromkeys(("listRehearsals", "getRehearsal"), _READ),
    **dict.fromkeys(("advanceBatch", "cancelBatch", "pauseBatch", "resumeBatch", "retryBatch"), _OPERATE),
    **dict.fromkeys(("removeMembers", "addMembers", "sendMessagesAgain", "confirmMove", "keepMembers"), _OPERATE),
    "rescheduleBatch": _OPERATE,
    "pullDirectives": Access("work", True, SERVICE),
    **dict.fromkeys(("pullWorkerJobs", "renewWorkerJobs"), Access("work", limit=WORKER)),
    "takeWorkerResults": Access("work"),  # Each result is answered for itself.
    **dict.fromkeys(("healthz", "readyz"), Access(None)),
}
"""Who may call what, written down by hand: a route that is not here, or whose rule was changed, fails the matrix."""


def check_every_route_is_listed(described: dict[str, Any]) -> None:
    """`described` is the OpenAPI document that the server gave out."""
    served = {
        (method.upper(), path): operation["operationId"]
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert served == {(one.method, one.path): one.name for one in OPERATIONS}
    assert {one.name for one in OPERATIONS} == set(ACCESS), "each route needs a line in ACCESS"


def refusal(access: Access, credential: Credential) -> tuple[int, str] | None:
    """How this call must be refused; None if it must not be."""
    if access.role is None:
        return None
    if credential.roles is None:
        return 401, "UNAUTHENTICATED"
    if not credential.may(access.role) or (access.on_all_tenants and credential.tenants is not None):
        return 403, "FORBIDDEN"
    if access.limit == KEY:
        return (403, "FORBIDDEN") if credential.name.startswith("token ") else None
    if access.limit == WORKER and credential.tenants is not None:
        return 403, "FORBIDDEN"  # No tenant owns the worker of the example.
    if not credential.is_limited() or access.limit is None:
        return None
    is_allowed = credential.services == {"ocr"} if access.limit == SERVICE else credential.worker_ids == {"exchange"}
    return None if is_allowed else (403, "FORBIDDEN")


def request_of(operation: Operation) -> tuple[str, Any]:
    """A path and a body that a permitted caller gets past authorization with."""
    body = BODIES.get(operation.name)
    if isinstance(body, dict) and "wait_seconds" in body:
        body = body | {"wait_seconds": 0}
    return operation.path.format(**PATH_VALUES), body


async def try_matrix(session: aiohttp.ClientSession, target: Target, credentials: list[Credential]) -> int:
    """Every route under every credential; how many cells there were."""
    cells = 0
    for url, operation, credential in _cells(target, credentials):
        path, body = request_of(operation)
        wanted = refusal(ACCESS[operation.name], credential)
        if operation.name in OF_OWN_TENANT and wanted is None and not _sees_own(credential):
            wanted = 403, "TENANT_FORBIDDEN"
        status, code = await _call(session, operation.method, url + path, body, credential)
        where = f"{operation.name} under {credential.name}: {status} {code}"
        if wanted is not None:
            assert (status, code) == wanted, where
        elif ACCESS[operation.name].role is not None:
            assert status not in (401, 403), where
        assert status < 500, where
        cells += 1
    return cells


async def try_foreign_job(
    session: aiohttp.ClientSession, target: Target, credentials: list[Credential], job_id: str
) -> int:
    """A job of OWN under everybody who must not know of it: it looks like a job that does not exist."""
    calls = 0
    strangers = [one for one in credentials if one.roles and not _sees_own(one)]
    assert strangers
    for url, operation, credential in _cells(target, strangers):
        access = ACCESS[operation.name]
        if "{job_id}" not in operation.path or access.on_all_tenants or not credential.may(str(access.role)):
            continue
        body = request_of(operation)[1]
        found = await _call(session, operation.method, url + operation.path.format(job_id=job_id), body, credential)
        unknown = await _call(session, operation.method, url + request_of(operation)[0], body, credential)
        assert found == unknown == (404, "JOB_NOT_FOUND"), f"{operation.name} under {credential.name}: {found}"
        calls += 1
    for credential in strangers:
        if credential.may("read"):
            headers = {"Authorization": str(credential.header)}
            for query in ("", f"?tenant_id={OWN}", f"?tenant_id=%20{OWN.upper()}%20"):
                async with session.get(f"{target.urls[0]}/v1/jobs{query}", headers=headers) as answer:
                    items = (await answer.json())["items"]
                    assert all(item["tenant_id"] != OWN for item in items), f"a list under {credential.name}"
                    calls += 1
    return calls


async def try_foreign_runbook(
    session: aiohttp.ClientSession, target: Target, credentials: list[Credential], runbook: str, batch_id: int
) -> int:
    """A runbook of OWN and its batch under everybody who must not know of them: they look like unknown ones."""
    calls = 0
    strangers = [one for one in credentials if one.roles and not _sees_own(one)]
    own = PATH_VALUES | {"name": runbook, "batch_id": str(batch_id)}
    for url, operation, credential in _cells(target, strangers):
        names_one = "{name}" in operation.path or "{batch_id}" in operation.path
        if not names_one or not credential.may(str(ACCESS[operation.name].role)):
            continue
        body = request_of(operation)[1]
        found = await _call(session, operation.method, url + operation.path.format(**own), body, credential)
        assert found == (404, "NOT_FOUND"), f"{operation.name} under {credential.name}: {found}"
        calls += 1
    for credential in strangers:
        if credential.may("read"):
            headers = {"Authorization": str(credential.header)}
            for path in ("runbooks", "batches", f"batches?runbook={runbook}"):
                async with session.get(f"{target.urls[0]}/v1/{path}", headers=headers) as answer:
                    assert (await answer.json())["items"] == [], f"{path} under {credential.name}"
                    calls += 1
    return calls


def _sees_own(credential: Credential) -> bool:
    return credential.tenants is None or OWN in credential.tenants


def _cells(target: Target, credentials: list[Credential]) -> Iterator[tuple[str, Operation, Credential]]:
    urls = cycle(target.urls)
    for operation in OPERATIONS:
        for credential in credentials:
            yield next(urls), operation, credential


async def _call(
    session: aiohttp.ClientSession, method: str, url: str, body: Any, credential: Credential
) -> tuple[int, str | None]:
    headers = {} if credential.header is None else {"Authorization": credential.header}
    async with session.request(method, url, json=body if method == "POST" else None, headers=headers) as answer:
        is_problem = answer.content_type == "application/problem+json"
        return answer.status, (await answer.json())["code"] if is_problem else None
