"""What every operation shares: who calls, what goes wrong, which id it is logged under."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucius.api.problems import defect, problem
from lucius.auth import Principal
from lucius.desk import Desk
from lucius.domain.errors import CallerError, InfrastructureError, LuciusError
from lucius.ports.bus import BusUnavailable
from lucius.ports.ledger import LedgerUnavailable
from lucius.sql.database import DatabaseUnavailable

_encode = msgspec.json.Encoder().encode

CORRELATION_CHARS_MAX = 128


class Call:
    """One request, and who makes it."""

    __slots__ = ("desk", "principal", "request")

    def __init__(self, request: Request, desk: Desk, principal: Principal | None) -> None:
        self.request = request
        self.desk = desk
        self.principal = principal

    @property
    def caller(self) -> Principal:
        if self.principal is None:
            raise CallerError.of("UNAUTHENTICATED", "this call needs a bearer token")
        return self.principal


Handler = Callable[[Call], Awaitable[Response]]


class Answer(Response):
    """A JSON response whose headers are laid down as they are sent; the general way takes several times as long."""

    def __init__(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if headers:
            self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Answer(_encode(body), status, headers)


def endpoint(
    desk: Desk, handler: Handler, role: str | None, on_all_tenants: bool
) -> Callable[[Request], Awaitable[Response]]:
    """A Starlette endpoint for a handler: authenticate, authorize, run, and turn every error into a problem."""
    authenticator = desk.authenticator

    async def run(request: Request) -> Response:
        try:
            principal: Principal | None = None
            if role is not None:
                credential = _credential(request)
                principal = authenticator.known(credential) or await authenticator.authenticate(credential)
                if not principal.may(role):
                    raise CallerError.of("FORBIDDEN", f"this call needs the role {role}")
                if on_all_tenants and principal.tenants is not None:
                    raise CallerError.of("FORBIDDEN", f"this call needs the role {role} on all tenants")
            return await handler(Call(request, desk, principal))
        except LuciusError as error:
            return problem(error, correlation_id(request, desk))
        except (LedgerUnavailable, BusUnavailable, DatabaseUnavailable) as error:
            return problem(InfrastructureError.unavailable(str(error)), correlation_id(request, desk))
        except Exception as error:
            return defect(error, correlation_id(request, desk))

    return run


def _credential(request: Request) -> str | None:
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            return text
    return None


def correlation_id(request: Request, desk: Desk) -> str:
    """The caller's own, where it sent a usable one; else a new one."""
    own = request.headers.get("x-correlation-id", "")
    if own and len(own) <= CORRELATION_CHARS_MAX and own.isprintable():
        return own
    return desk.clock.lease_id()
