"""What calls about runbooks share: names and numbers in addresses, moments and member keys in bodies."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from lucius.api.endpoint import Call
from lucius.api.requests import Parameters
from lucius.domain.errors import CallerError
from lucius.domain.time import Instant, from_datetime
from lucius.runbooks.definition.names import check_name
from lucius.runbooks.operations import missing_batch
from lucius.runbooks.publishing import missing
from lucius.runbooks.sources.rows import KEY_CHARS_MAX

SMALL_BODY_BYTES_MAX = 4_096
JSON_OVERHEAD_BYTES = 65_536
EVENTS_PAGE_SIZE = 100
KEYS_MAX = 5_000
"""Members that one call may name."""
ID_DIGITS_MAX = 18
CURSOR_MAX = 10**ID_DIGITS_MAX - 1
YEARS = range(1971, 9999)
"""Years of a batch's start: a phase a year before or after it must still be a date."""


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a call that says it all by its address."""


def runbook_name(call: Call) -> str:
    name: str = call.request.path_params["name"]
    try:
        return check_name(name)
    except ValueError:
        raise missing(name[:80]) from None


def batch_id(call: Call) -> int:
    text: str = call.request.path_params["batch_id"]
    if not (text.isascii() and text.isdigit()) or len(text) > ID_DIGITS_MAX:
        raise CallerError.of("NOT_FOUND", f"there is no batch {text[:40]!r}: a batch's id is a number")
    if not int(text):
        raise missing_batch(0)
    return int(text)


def cursor(parameters: Parameters) -> int | None:
    """The id that a page goes on from."""
    return parameters.whole("cursor", 0, 1, CURSOR_MAX) or None


def bytes_within(text: str, bytes_max: int, name: str) -> bytes:
    content = text.encode()
    if len(content) > bytes_max:
        raise CallerError.of("BODY_TOO_LARGE", f"{name} has {len(content)} bytes, more than {bytes_max}", f"/{name}")
    return content


def body_bytes_max(text_bytes_max: int) -> int:
    """What a text of so many bytes may need in JSON, where every line's end takes two."""
    return text_bytes_max * 2 + JSON_OVERHEAD_BYTES


def moment(text: str, pointer: str) -> Instant:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise CallerError.of("ENVELOPE_INVALID", "must be a date and time in ISO 8601", pointer) from None
    if found.tzinfo is None:
        raise CallerError.of("ENVELOPE_INVALID", "must name its time zone, such as Z", pointer)
    if found.year not in YEARS:
        detail = f"must lie in the years {YEARS.start} to {YEARS.stop - 1}"
        raise CallerError.of("ENVELOPE_INVALID", detail, pointer)
    return from_datetime(found)


def check_keys(keys: list[str], pointer: str = "/members") -> list[str]:
    if not 1 <= len(keys) <= KEYS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"1 to {KEYS_MAX} members, not {len(keys)}", pointer)
    for index, key in enumerate(keys):
        if not 1 <= len(key) <= KEY_CHARS_MAX or "\x00" in key:
            detail = f"a member's key has 1 to {KEY_CHARS_MAX} characters"
            raise CallerError.of("ENVELOPE_INVALID", detail, f"{pointer}/{index}")
    return list(dict.fromkeys(keys))
