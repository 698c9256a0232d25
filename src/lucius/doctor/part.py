"""A part of an installation, the question that is put to it, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from lucius.ports.readiness import Check
from lucius.telemetry.redaction import Redactor
from lucius.usecases.readiness import Readiness

PART_SECONDS_MAX = 15.0


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
    readiness = Readiness([Check(name=part.name, look=part.look) for part in parts], seconds_max)
    try:
        report = await readiness.look()
    finally:
        await readiness.stop()
    redactor = Redactor(secrets)
    found = []
    for part in parts:
        finding = report.checks[part.name]
        detail = " ".join(redactor.redact(finding.detail).split())
        found.append(
            Diagnosis(part=part.name, ok=finding.ok, detail=detail, remedy=None if finding.ok else part.remedy)
        )
    return found
