"""A part of an installation, the question that is put to it, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from lucius.ports.readiness import Check, NotReady
from lucius.telemetry.redaction import Redactor
from lucius.usecases.readiness import Readiness

PART_SECONDS_MAX = 15.0
MEND_FIRST = "Mend the part that is named first."


class NotAsked(NotReady):
    """Another part, which the text names, has to work first."""


class Part(Struct, frozen=True, kw_only=True):
    name: str
    look: Callable[[], Awaitable[str]]
    """What holds, in a few words. Raises if something is wrong; the text says what."""
    remedy: str
    """What to do if something is wrong."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    part: str
    ok: bool
    detail: str
    """What holds, or what is wrong."""
    remedy: str | None = None
    """What to do about it; None if nothing is wrong."""


async def examine(
    parts: Sequence[Part], secrets: Sequence[str] = (), seconds_max: float = PART_SECONDS_MAX
) -> list[Diagnosis]:
    """All at once; a part that does not answer in time keeps nobody waiting."""
    not_asked: set[str] = set()
    readiness = Readiness([Check(name=part.name, look=_noting(part, not_asked)) for part in parts], seconds_max)
    try:
        report = await readiness.look()
    finally:
        await readiness.stop()
    redactor = Redactor(secrets)
    found = []
    for part in parts:
        finding = report.checks[part.name]
        detail = " ".join(redactor.redact(finding.detail).split())
        remedy = MEND_FIRST if part.name in not_asked else part.remedy
        found.append(Diagnosis(part=part.name, ok=finding.ok, detail=detail, remedy=None if finding.ok else remedy))
    return found


def _noting(part: Part, not_asked: set[str]) -> Callable[[], Awaitable[str]]:
    async def look() -> str:
        try:
            return await part.look()
        except NotAsked:
            not_asked.add(part.name)
            raise

    return look
