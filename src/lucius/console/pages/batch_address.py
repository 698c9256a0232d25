"""What addresses of batches and members contain."""

from __future__ import annotations

from collections.abc import Mapping

from lucius.api.runbook_requests import batch_id as api_batch_id
from lucius.api.runbook_scope import ID_DIGITS_MAX
from lucius.console.page import View
from lucius.domain.errors import CallerError


def batch_id(view: View) -> int:
    return api_batch_id(view.call)


def member_id(view: View) -> int:
    text: str = view.request.path_params["member_id"]
    if not (text.isascii() and text.isdigit()) or len(text) > ID_DIGITS_MAX or not int(text):
        raise CallerError.of("NOT_FOUND", f"there is no member {text[:40]!r}: a member's id is a number")
    return int(text)


def number_in(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > ID_DIGITS_MAX or not int(text):
        raise CallerError.of("ENVELOPE_INVALID", f"{name} must be a whole number from 1")
    return int(text)
