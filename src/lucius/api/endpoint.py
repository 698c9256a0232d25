"""Shared by every operation: authentication, error handling, correlation ids, JSON answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lucius.api.problems import defect, problem
from lucius.api.requests import find_header
from lucius.api.runbook_scope import check_path
from lucius.app_context import AppContext
from lucius.auth import Principal
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.ports.bus import BusUnavailable
from lucius.ports.database import DatabaseUnavailable
from lucius.ports.ledger import LedgerUnavailable

_encode = msgspec.json.Encoder().encode

CORRELATION_CHARS_MAX = 128
PIECE_BYTES = 16_384
NAMES_SHOWN_MAX = 20
ADMITTED_SECONDS = 1.0
"""How long an admitted caller's credential is not checked again."""


Admit = Callable[[Request], Awaitable[Principal]]
"""Authenticates and authorizes a request. Raises `LuciusError`."""


class Call:
    """One request and its caller."""

    __slots__ = ("_admit", "_admitted_at", "context", "principal", "request")

    def __init__(self, request: Request, context: AppContext, principal: Principal | None, admit: Admit) -> None:
        self.request = request
        self.context = context
        self.principal = principal
        self._admit = admit
        self._admitted_at = time.monotonic()

    @property
    def caller(self) -> Principal:
        if self.principal is None:
            raise CallerError.of("UNAUTHENTICATED", "this call needs a bearer token")
        return self.principal

    def sees(self, tenant_norm: str) -> bool:
        """Whether the caller, as last admitted, sees this tenant."""
        return self.caller.sees(tenant_norm)

    async def admit_again(self) -> None:
        """For long calls: meanwhile the key may be removed, the token may expire, or a role or tenant may be revoked.
        Raises the error that a new call would get."""
        if time.monotonic() - self._admitted_at >= ADMITTED_SECONDS:
            self.principal = await self._admit(self.request)
            self._admitted_at = time.monotonic()

    def require_service(self, service: str) -> None:
        """Raise FORBIDDEN if the caller is limited to other services."""
        refused = _refusal("directives", self.caller.services, service)
        if refused is not None:
            raise CallerError.of("FORBIDDEN", refused, "/service")

    @property
    def worker_ids(self) -> frozenset[str] | None:
        """Workers whose runbook jobs the caller may take; None means all. If it is limited to tenants, only workers
        that are theirs alone: the queue of any other may have jobs of everybody."""
        caller = self.caller
        if caller.tenants is None:
            return caller.worker_ids
        own = self.context.runbooks.turns.grants.own_workers(caller.tenants)
        return own if caller.worker_ids is None else own & caller.worker_ids

    def require_worker(self, worker_id: str) -> None:
        """Raise FORBIDDEN if the caller is limited to other runbook workers."""
        refused = _refusal("runbook jobs", self.worker_ids, worker_id)
        if refused is not None:
            raise CallerError.of("FORBIDDEN", refused, "/workerId")


def _refusal(what: str, allowed: frozenset[str] | None, name: str) -> str | None:
    if allowed is None or name in allowed:
        return None
    if not allowed:
        return f"this key or token may not take any {what}"
    named = ", ".join(sorted(allowed)[:NAMES_SHOWN_MAX]) + (" …" if len(allowed) > NAMES_SHOWN_MAX else "")
    return f"this key or token may take {what} of {named}, but not of {name[:CORRELATION_CHARS_MAX]}"


Handler = Callable[[Call], Awaitable[Response]]


class JsonResponse(Response):
    """A JSON response that builds its raw headers directly; Starlette's way takes several times as long."""

    def __init__(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if headers:
            self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


class PiecewiseJsonResponse(JsonResponse):
    """For a large body that anybody may request: other requests are served between its pieces."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JsonResponse(_encode(body), status, headers)


def endpoint(
    context: AppContext, handler: Handler, role: str | None, on_all_tenants: bool
) -> Callable[[Request], Awaitable[Response]]:
    """A Starlette endpoint for a handler: authenticate, authorize, run, and turn every error into a problem."""
    authenticator = context.authenticator

    async def admit(request: Request) -> Principal:
        credential = credential_of(request)
        principal = authenticator.known(credential) or await authenticator.authenticate(credential)
        if role is not None and not principal.may(role):
            raise CallerError.of("FORBIDDEN", f"this call needs the role {role}")
        if on_all_tenants and principal.tenants is not None:
            raise CallerError.of("FORBIDDEN", f"this call needs the role {role} on all tenants")
        await check_path(context, principal, request.path_params)
        return principal

    async def run(request: Request) -> Response:
        try:
            principal = None if role is None else await admit(request)
            return await handler(Call(request, context, principal, admit))
        except LuciusError as error:
            return problem(error, correlation_id(request, context))
        except (LedgerUnavailable, BusUnavailable, DatabaseUnavailable) as error:
            return problem(InfrastructureError.unavailable(str(error)), correlation_id(request, context))
        except Exception as error:
            return defect(error, correlation_id(request, context))

    return run


def credential_of(request: Request) -> str | None:
    header = find_header(request, b"authorization")
    return None if header is None else header.decode("latin-1")


def correlation_id(request: Request, context: AppContext) -> str:
    """The caller's, if it sent a valid one; otherwise a new one."""
    sent = request.headers.get("x-correlation-id", "")
    if sent and len(sent) <= CORRELATION_CHARS_MAX and sent.isprintable():
        return sent
    return context.clock.lease_id()
