"""Reads requests: bodies within limits, and query parameters with precise errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.types import Receive

from lucius.domain.errors import CallerError
from lucius.domain.json_types import stated
from lucius.domain.strict_json import parse
from lucius.domain.time import BadMoment, Instant, InstantOutOfRange, from_datetime, read_moment
from lucius.usecases.bodies import UNREADABLE, body_error

T = TypeVar("T", bound=Struct)
Decoded = TypeVar("Decoded")

LENGTH_DIGITS_MAX = 18
SMALL_BODY_BYTES_MAX = 4_096
REASON_CHARS_MAX = 500


def find_header(request: Request, name: bytes) -> bytes | None:
    """The first header of this name, in lower case, as it was sent."""
    for found, value in request.scope["headers"]:
        if found == name:
            return bytes(value)
    return None


async def read_body(request: Request, bytes_max: int, may_be_empty: bool = False) -> bytes:
    """The body, if its type is JSON and it is within the limit; a larger body is not read to its end."""
    kind, declared = b"", b""
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length":
            declared = value
    if declared.isdigit() and (len(declared) > LENGTH_DIGITS_MAX or int(declared) > bytes_max):
        raise _too_large(bytes_max)
    body = await read_to_end(request.receive, bytes_max)
    if not body and may_be_empty:
        return b""
    if kind != b"application/json" and kind.partition(b";")[0].strip().lower() != b"application/json":
        shown = kind.decode("latin-1")[:80] or "of no type"
        raise CallerError.of("UNSUPPORTED_MEDIA_TYPE", f"the body must be application/json, not {shown}")
    return body


async def read_to_end(receive: Receive, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerError.of("MALFORMED_JSON", "the caller disconnected before the body was complete")
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)


def _too_large(bytes_max: int) -> CallerError:
    return CallerError.of("BODY_TOO_LARGE", f"the body is larger than {bytes_max} bytes")


async def read_document(request: Request, bytes_max: int, depth_max: int) -> object:
    return parse(await read_body(request, bytes_max), depth_max)


async def read_typed(request: Request, bytes_max: int, type_: type[T], may_be_empty: bool = False) -> T:
    """A small body of a fixed shape."""
    body = await read_body(request, bytes_max, may_be_empty)
    return decode_typed(b"{}" if may_be_empty and not body else body, type_)


def decode_typed(body: bytes | Raw, type_: type[Decoded], pointer: str = "") -> Decoded:
    """A Struct, or a plain type such as `str`."""
    try:
        return msgspec.json.decode(body, type=type_)
    except UNREADABLE as error:
        raise body_error(error, pointer) from error


class Reason(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, stated(maxLength=REASON_CHARS_MAX)] | None = None


NEW_PAYLOAD = "The payload of the new job, which then begins at its first step; needs the role `submit` too"


class Redrive(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, stated(maxLength=REASON_CHARS_MAX)] | None = None
    payload: Annotated[Raw, stated(type="object", description=NEW_PAYLOAD)] | UnsetType = UNSET


class Dismiss(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, stated(minLength=1, maxLength=REASON_CHARS_MAX)]


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, stated(maxLength=REASON_CHARS_MAX)] | None = None
    force: Annotated[bool, Meta(description="End the job now, whatever its live attempt does; needs a reason")] = False


JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_SHAPE = "00000000-0000-0000-0000-000000000000"


class Parameters:
    """Query parameters; `close` rejects unknown ones."""

    def __init__(self, request: Request) -> None:
        self._values = dict(request.query_params)
        repeated = [name for name in self._values if len(request.query_params.getlist(name)) > 1]
        if repeated:
            raise _bad(repeated[0], "is given more than once")

    def text(self, name: str, chars_max: int = 256) -> str | None:
        value = self._values.pop(name, None)
        if value is not None and (not value or len(value) > chars_max or "\x00" in value):
            raise _bad(name, f"must have 1 to {chars_max} characters")
        return value

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        value = self.text(name)
        choices = list(choices)
        if value is not None and value not in choices:
            raise _bad(name, f"must be one of {', '.join(choices)}")
        return value

    def choices(self, name: str, choices: Iterable[str]) -> tuple[str, ...] | None:
        """One or more, separated by commas."""
        value, choices = self.text(name), list(choices)
        if value is None:
            return None
        found = tuple(dict.fromkeys(value.split(",")))
        if not set(found) <= set(choices):
            raise _bad(name, f"must be one of {', '.join(choices)}, or several of them with commas between")
        return found

    def id_prefix(self, name: str) -> str | None:
        """The first characters of an id."""
        value = self.text(name, len(_ID_SHAPE))
        if value is None:
            return None
        value = value.lower()
        if not JOB_ID.fullmatch(value + _ID_SHAPE[len(value) :]):
            raise _bad(name, "must be the first characters of an id, such as 019a1f2e-7c3b")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            raise _bad(name, "must be a number") from None
        if not low <= number <= high:
            raise _bad(name, f"must be between {low:g} and {high:g}")
        return number

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit()) or len(value) > 18 or not low <= int(value) <= high:
            raise _bad(name, f"must be a whole number between {low} and {high}")
        return int(value)

    def moment(self, name: str) -> Instant | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return from_datetime(read_moment(value))
        except (BadMoment, InstantOutOfRange) as error:
            raise _bad(name, str(error)) from None

    def job_cursor(self) -> str | None:
        """Where a list of jobs continues."""
        value = self.text("cursor", 64)
        if value is not None and not JOB_ID.fullmatch(value):
            raise _bad("cursor", "is not a cursor returned by a list")
        return value

    def close(self) -> None:
        if self._values:
            name = next(iter(self._values))
            raise _bad(name, "is not a parameter of this call")


def _bad(name: str, detail: str) -> CallerError:
    shown = name[:80]
    return CallerError.of("ENVELOPE_INVALID", f"query parameter {shown} {detail}", f"?{shown}")
