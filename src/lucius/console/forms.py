"""Reads forms, within limits."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from lucius.api.requests import REASON_CHARS_MAX, read_to_end
from lucius.domain.errors import CallerError

FORM_BYTES_MAX = 262_144
FIELDS_MAX = 100
FORM_TYPE = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form that was sent; of a repeated field, the last counts."""

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def text(self, name: str, chars_max: int = 256) -> str:
        """What was typed, without spaces around it; empty if nothing was."""
        value = self._fields.get(name, "").replace("\x00", "").strip()
        if len(value) > chars_max:
            raise CallerError.of("ENVELOPE_INVALID", f"{name} must have at most {chars_max} characters")
        return value

    def reason(self) -> str:
        reason = self.text("reason", REASON_CHARS_MAX)
        if not reason:
            raise CallerError.of("ENVELOPE_INVALID", "say why: the reason is kept in the audit trail")
        return reason

    def number(self, name: str, default: int, high: int) -> int:
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdigit()) or len(value) > 12 or int(value) > high:
            raise CallerError.of("ENVELOPE_INVALID", f"{name} must be a whole number from 0 to {high}")
        return int(value)


async def read_form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM_TYPE:
        raise CallerError.of("UNSUPPORTED_MEDIA_TYPE", f"a form must be sent as {FORM_TYPE}")
    body = await read_to_end(request.receive, FORM_BYTES_MAX)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except (UnicodeDecodeError, ValueError):
        raise CallerError.of("ENVELOPE_INVALID", "the form cannot be read") from None
    return Form(dict(pairs))
