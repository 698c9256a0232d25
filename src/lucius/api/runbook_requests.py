"""Shared by calls about runbooks: names and numbers in paths, times and member keys in bodies."""

from __future__ import annotations

from typing import Annotated

from msgspec import Raw

from lucius.api.batch_items import split
from lucius.api.endpoint import Call
from lucius.api.requests import REASON_CHARS_MAX, Parameters, decode_typed
from lucius.api.runbook_scope import BATCH, RUNBOOK, read_batch_id, read_runbook_name
from lucius.domain.errors import CallerError
from lucius.domain.json_types import stated
from lucius.domain.time import BadMoment, Instant, from_datetime, read_moment
from lucius.runbooks.core.answers import ID_MAX
from lucius.runbooks.sources.rows import BATCH_YEARS, KEY_CHARS_MAX

JSON_OVERHEAD_BYTES = 65_536
EVENTS_PAGE_SIZE = 100
KEYS_MAX = 5_000
"""Members that one call may name."""


RunbookYaml = Annotated[str, stated(minLength=1)]
_NAMES = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
    "minItems": 1,
    "maxItems": KEYS_MAX,
}
Names = Annotated[Raw, stated(**_NAMES)]
"""Keys of members, or ids of messages."""
ReasonOrNull = Annotated[str, stated(maxLength=REASON_CHARS_MAX)] | None
NamesOrNull = Annotated[Raw, stated(anyOf=[_NAMES, {"type": "null"}], default=None)]


def read_reason(text: str | None) -> str:
    """Why an operator acts; empty if nothing was said."""
    reason = (text or "").replace("\x00", "").strip()
    if len(reason) > REASON_CHARS_MAX:
        raise CallerError.of("ENVELOPE_INVALID", f"a reason has at most {REASON_CHARS_MAX} characters", "/reason")
    return reason


def runbook_name(call: Call) -> str:
    return read_runbook_name(call.request.path_params[RUNBOOK])


def batch_id(call: Call) -> int:
    return read_batch_id(call.request.path_params[BATCH])


def cursor(parameters: Parameters) -> int | None:
    """The id that a page continues from."""
    return parameters.whole("cursor", 0, 1, ID_MAX) or None


def page_limits(call: Call, parameters: Parameters, page_size: int) -> tuple[int, int | None]:
    """The last parameters of a list: how many items, and the id that the page continues from."""
    limit = parameters.whole("limit", page_size, 1, call.context.settings.page_size_max)
    start = cursor(parameters)
    parameters.close()
    return limit, start


def page_cursor(next_id: int | None) -> str | None:
    """The value of `next` in a page."""
    return None if next_id is None else str(next_id)


def bytes_within(text: str, bytes_max: int, name: str) -> bytes:
    content = text.encode()
    if len(content) > bytes_max:
        raise CallerError.of("BODY_TOO_LARGE", f"{name} has {len(content)} bytes, more than {bytes_max}", f"/{name}")
    return content


def body_bytes_max(text_bytes_max: int) -> int:
    """Bytes that a text of this size may need in JSON, where every line end takes two."""
    return text_bytes_max * 2 + JSON_OVERHEAD_BYTES


def moment(text: str, pointer: str) -> Instant:
    try:
        found = read_moment(text)
    except BadMoment as error:
        raise CallerError.of("ENVELOPE_INVALID", str(error), pointer) from None
    if found.year not in BATCH_YEARS:
        detail = f"must be in the years {BATCH_YEARS.start} to {BATCH_YEARS.stop - 1}"
        raise CallerError.of("ENVELOPE_INVALID", detail, pointer)
    return from_datetime(found)


def read_keys(members: Raw) -> list[str]:
    """The keys of members in a body, without duplicates."""
    return _read_names(members, "members", "a member's key")


def read_message_ids(messages: Raw) -> list[str]:
    """The ids of messages in a body, without duplicates."""
    return _read_names(messages, "messages", "a message's id")


def _read_names(names: Raw, field: str, what: str) -> list[str]:
    keys = [decode_typed(item, str, f"/{field}/{index}") for index, item in enumerate(split(names, field, KEYS_MAX))]
    for index, key in enumerate(keys):
        if not 1 <= len(key) <= KEY_CHARS_MAX or "\x00" in key:
            detail = f"{what} must have 1 to {KEY_CHARS_MAX} characters"
            raise CallerError.of("ENVELOPE_INVALID", detail, f"/{field}/{index}")
    return list(dict.fromkeys(keys))
