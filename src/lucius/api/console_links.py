"""Links that sign in to the console, for whoever has an API key and no browser session yet."""

from __future__ import annotations

from starlette.responses import Response

from lucius.api import admin_answers
from lucius.api.endpoint import Call, answer, credential_of
from lucius.api.operation import Operation
from lucius.api.requests import SMALL_BODY_BYTES_MAX, read_body
from lucius.domain.errors import CallerError
from lucius.domain.time import iso


async def create_link(call: Call) -> Response:
    await read_body(call.request, SMALL_BODY_BYTES_MAX, may_be_empty=True)
    context = call.context
    if not context.settings.has_console:
        raise CallerError.of("NOT_FOUND", "this server has no console: LUCIUS_CONSOLE is off")
    key_hash = context.authenticator.key_hash(credential_of(call.request))
    if key_hash is None:
        raise CallerError.of("FORBIDDEN", "a link signs in as an API key: call this with one, not with a token")
    link = await context.console_sessions.new_link(key_hash)
    url = f"{context.settings.console_address}/sign-in/{link.token}"
    return answer(
        admin_answers.ConsoleLink(url=url, expires_at=iso(link.expires_at)), 201, {"Cache-Control": "no-store"}
    )


CONSOLE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST", path="/v1/console-links", name="createConsoleLink", handler=create_link, tag="operators",
        summary="Make a link that signs in to the console, once and within a minute, as the caller's API key",
        role="read", body="Empty", body_required=False, status=201, answer="ConsoleLink",
        errors=("NOT_FOUND", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"),
    ),
)  # fmt: skip
