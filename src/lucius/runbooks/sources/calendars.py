"""Calendar files that runbooks name in `freeze`: found as sources are, by variables of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from lucius.domain.time import Instant
from lucius.runbooks.core.definition.calendar import Calendar, Freeze
from lucius.runbooks.core.definition.faults import Fault
from lucius.runbooks.core.definition.ics import BYTES_MAX, FREEZES_MAX, IcsInvalid, read_ics
from lucius.runbooks.core.definition.reading import RunbookInvalid, fault_at
from lucius.runbooks.sources.files import read_bytes
from lucius.runbooks.sources.limits import SourceError

YEARS_AHEAD = 10
"""How far repetitions are followed: to the end of the year that is so many after this one."""


def read_calendars(
    content: bytes, calendar: Calendar, environ: Mapping[str, str], own_files: Sequence[Path], now: Instant
) -> list[Freeze]:
    """The freezes in the files that a runbook's text names, from this year on. Raises `RunbookInvalid`."""
    year = datetime.fromtimestamp(now // 1000, UTC).year
    first, last = (int(datetime(one, 1, 1, tzinfo=UTC).timestamp()) * 1000 for one in (year, year + YEARS_AHEAD + 1))
    found: list[Freeze] = []
    faults: list[Fault] = []
    for place, variable in calendar.files:
        try:
            text = _text(variable, environ, own_files)
            found += read_ics(text, ZoneInfo(calendar.time_zone), first, last)
            if len(found) > FREEZES_MAX:
                raise SourceError(f"the events of all files come to more than {FREEZES_MAX} freezes: use fewer")
        except IcsInvalid as error:
            faults.append(fault_at(content, f"/freeze/{place}/ics", f"the file that {variable} names, {error}"))
        except SourceError as error:
            faults.append(fault_at(content, f"/freeze/{place}/ics", str(error)))
    if faults:
        raise RunbookInvalid(faults)
    return found


def _text(variable: str, environ: Mapping[str, str], own_files: Sequence[Path]) -> str:
    path = environ.get(variable)
    if not path:
        raise SourceError(f"the environment variable {variable} is not set: set it to the path of the iCalendar file")
    content = read_bytes(Path(path), own_files, variable, BYTES_MAX)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"the file that {variable} names is not UTF-8") from None
