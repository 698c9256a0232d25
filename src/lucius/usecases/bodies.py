"""Errors for a body that is not JSON, or does not have the expected shape."""

from __future__ import annotations

import msgspec

from lucius.domain.errors import CallerError, Fault

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def body_error(error: Exception, pointer: str = "") -> CallerError:
    """The error for a decoding failure; `pointer` names the part of the body that was read."""
    if not isinstance(error, msgspec.ValidationError):
        return CallerError.of("MALFORMED_JSON", f"the body is not valid JSON: {error}")
    text, _, path = str(error).partition(" - at `$")
    pointer += path.rstrip("`").replace("[", "/").replace("]", "").replace(".", "/")
    if text.startswith("Invalid JSON") or "utf-8" in text.lower():
        return CallerError.of("MALFORMED_JSON", f"the body is not valid JSON: {text}")
    return CallerError([Fault("ENVELOPE_INVALID", pointer, text)])
