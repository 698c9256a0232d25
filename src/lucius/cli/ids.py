"""Ids by their first characters, as people type them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lucius.cli.failures import Refused, Unusable, printable
from lucius.cli.output.formatting import distance, text_of
from lucius.client.calls import jobs as job_calls
from lucius.client.calls import operations as operation_calls

if TYPE_CHECKING:
    from lucius.cli.connection import ApiSession

SHOWN_MAX = 10
"""Candidates that are listed for a prefix of several ids."""
OPERATIONS_MAX = 200
"""A prefix of a bulk operation is looked for among this many, the newest."""
SHAPE = "00000000-0000-0000-0000-000000000000"
SHORT_CHARS = 13
"""An id begins with the millisecond that it was made in: in this many characters, with the dash."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_prefix(text: str) -> bool:
    """Whether an id can begin with this text, and is not complete."""
    return 0 < len(text) < len(SHAPE) and _ID.fullmatch(text.lower() + SHAPE[len(text) :]) is not None


def find_job(client: ApiSession, text: str) -> str:
    """The id of the only job that begins with this text. Whatever cannot be a prefix is left to the server to judge."""
    if not is_prefix(text):
        return text
    try:
        page = client.run(job_calls.jobs(job_id_prefix=text, limit=SHOWN_MAX + 1))
    except Refused as error:
        if error.code != "FILTER_UNSUPPORTED":
            raise
        raise Unusable(
            f"this server cannot find jobs by the beginning of their ids: give the whole id\n{error}"
        ) from error
    found = page["items"]
    if not found:
        raise Refused(404, {"code": "JOB_NOT_FOUND", "detail": f"no job's id begins with {text}"})
    now = datetime.now(UTC)
    lines = [
        f"  {text_of(job.get('jobId'))}  {text_of(job.get('status'))}  {text_of(job.get('request_type'))} of"
        f" {text_of(job.get('tenant_id'))}, {distance(job.get('created_at'), now)}"
        for job in found
    ]
    return _only([str(job.get("jobId")) for job in found], text, "job", lines)


def find_operation(client: ApiSession, text: str) -> str:
    if not is_prefix(text):
        return text
    page = client.run(operation_calls.list_operations(limit=OPERATIONS_MAX))
    found = [one for one in page["items"] if str(one.get("operationId")).startswith(text.lower())]
    if not found:
        among = f" among the newest {OPERATIONS_MAX}" if page["next"] else ""
        raise Refused(404, {"code": "NOT_FOUND", "detail": f"no operation's id begins with {text}{among}"})
    lines = [
        f"  {text_of(one.get('operationId'))}  {text_of(one.get('action'))}  {text_of(one.get('status'))}"
        for one in found
    ]
    return _only([str(one.get("operationId")) for one in found], text, "operation", lines)


def _only(ids: Sequence[str], text: str, what: str, lines: Sequence[str]) -> str:
    if len(ids) == 1:
        return ids[0]
    count = f"more than {SHOWN_MAX}" if len(ids) > SHOWN_MAX else str(len(ids))
    listed = [printable(line) for line in lines[:SHOWN_MAX]]
    raise Unusable("\n".join([f"the ids of {count} {what}s begin with {text}; give more of it:", *listed]))


def shortened(ids: Sequence[str]) -> list[str]:
    """These ids, cut where they all still differ from each other."""
    for chars in range(SHORT_CHARS, len(SHAPE)):
        cut = [one[:chars] for one in ids]
        if len(set(cut)) == len(set(ids)) and not cut[0].endswith("-"):
            return cut
    return list(ids)
