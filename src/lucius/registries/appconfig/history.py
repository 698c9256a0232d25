"""Who pushed what and when: the sentinel's revisions, which App Configuration keeps for 7 days (Free) or 30."""

from __future__ import annotations

from msgspec import Struct

from lucius.registries.appconfig.keys import SENTINEL
from lucius.registries.appconfig.sentinel import read_sentinel
from lucius.registries.appconfig.store import AppConfigStore, Setting

REVISIONS_PER_PUSH = 3
"""The mark, perhaps the reason why it ended halfway, and the end."""
VALUE_CHARS_MAX = 200


class PushRecord(Struct, frozen=True, kw_only=True):
    at: str
    by: str
    outcome: str
    """`pushed`, `halted`, `unfinished` or `by hand`."""
    summary: str
    push_id: str
    etag: str


async def read_history(store: AppConfigStore, count_max: int) -> list[PushRecord]:
    """The newest first. Raises `StoreFailed`."""
    records: list[PushRecord] = []
    seen: set[str] = set()
    for revision in await store.revisions(SENTINEL, count_max * REVISIONS_PER_PUSH):
        record = _record(revision)
        if record.push_id and record.push_id in seen:
            continue  # An earlier word of the same push.
        seen.add(record.push_id)
        records.append(record)
    return records[:count_max]


def _record(revision: Setting) -> PushRecord:
    text = read_sentinel(revision.value)
    outcome, summary = "pushed", text.summary
    if text.is_pushing:
        outcome = "halted" if text.halted else "unfinished"
        summary = f"{summary} ({text.halted})" if text.halted else summary
    elif not text.digest:
        outcome, summary = "by hand", revision.value[:VALUE_CHARS_MAX]
    return PushRecord(
        at=text.pushed_at or text.pushing_since or revision.modified_at,
        by=text.pushed_by,
        outcome=outcome,
        summary=summary,
        push_id=text.push_id,
        etag=revision.etag,
    )
