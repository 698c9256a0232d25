"""A batch as a grid: a row for each member, a column for each step, a symbol for each status.

Columns are headed by step names, broken at hyphens if that makes them fit. On a terminal too narrow for that they are
numbered, with the names below; if that is still too wide, the grid continues in a second block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lucius.cli.output.formatting import clipped, text_of
from lucius.cli.output.program import hint
from lucius.cli.output.tables import GAP, aligned
from lucius.cli.runbooks.render import STATUS_STYLES

if TYPE_CHECKING:
    from rich.text import Text

Member = Mapping[str, Any]

SIGNS = {
    "succeeded": "✓",
    "dispatched": "»",
    "polling": "~",
    "pending": "·",
    "failed": "✗",
    "poll_timeout": "!",
    "rolled_back": "↺",
    "cancelled": "–",
}
UNKNOWN = "?"
HEADER_CELLS_MAX = 16
MEMBER_CELLS_MAX = 40
MEMBER_SHARE = 0.4
"""Maximum share of the terminal's width for the members' names."""
ERRORS_MAX = 10
REMOVED_MAX = 10


class StepColumn(NamedTuple):
    phase: str
    step: str


def columns_of(batch: Mapping[str, Any], members: Iterable[Member]) -> list[StepColumn]:
    """Every step of every phase, in the phases' order, including those that only some members have."""
    found: dict[StepColumn, None] = {}
    for phase in batch.get("phase_list") or ():
        for step in phase.get("steps") or ():
            found[StepColumn(str(phase.get("phase")), str(step.get("step")))] = None
    for member in members:
        for step in member.get("steps") or ():
            found[StepColumn(str(step.get("phase")), str(step.get("step")))] = None
    return list(found)


def statuses_of(member: Member) -> dict[StepColumn, str]:
    """If a member has a step twice, as after a version change, the last one counts."""
    return {
        StepColumn(str(step.get("phase")), str(step.get("step"))): str(step.get("status"))
        for step in member.get("steps") or ()
    }


def standing(member: Member) -> str:
    """`failed`, `removed` or `held`; empty for a healthy member."""
    if member.get("status") == "removed":
        return "removed"
    if member.get("move_held_at"):
        return "held"
    return "failed" if member.get("failed_at") or member.get("status") == "failed" else ""


# --- Plain lines -----------------------------------------------------------------------------------------------------


def grid_lines(columns: Sequence[StepColumn], members: Sequence[Member]) -> list[str]:
    """For any program: full names, a symbol for each step, and the member's standing."""
    rows = []
    for member in members:
        known = statuses_of(member)
        signs = [sign_of(known.get(column)) for column in columns]
        rows.append([text_of(member.get("member")), *signs, standing(member)])
    header = ["Member", *(text_of(f"{column.phase}/{column.step}") for column in columns), "Standing"]
    return [*aligned(rows, header), "", legend(members), *error_lines(members)]


def sign_of(status: str | None) -> str:
    return "" if status is None else SIGNS.get(status, UNKNOWN)


def legend(members: Iterable[Member]) -> str:
    """Legend of the statuses that occur."""
    present = {status for member in members for status in statuses_of(member).values()}
    return "   ".join(f"{sign} {status}" for status, sign in SIGNS.items() if status in present)


def error_lines(members: Sequence[Member]) -> list[str]:
    """The members' errors."""
    found = [
        f"{text_of(member.get('member'))}: {text_of(step.get('step'))} {text_of(step.get('status'))}: "
        f"{text_of(step.get('error'))}"
        for member in members
        for step in [*(member.get("steps") or ()), *(member.get("followups") or ())]
        if step.get("error") and step.get("status") != "cancelled"
    ]
    more = (
        [hint(f"and {len(found) - ERRORS_MAX} more; `lucius batch export` has them all")]
        if len(found) > ERRORS_MAX
        else []
    )
    return ["", *found[:ERRORS_MAX], *more] if found else []


def removed_lines(members: Sequence[Member]) -> list[str]:
    gone = [text_of(member.get("member")) for member in members if standing(member) == "removed"]
    more = f" and {len(gone) - REMOVED_MAX} more" if len(gone) > REMOVED_MAX else ""
    return [f"removed: {', '.join(gone[:REMOVED_MAX])}{more}"] if gone else []


# --- On a terminal ---------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    headers: list[list[str]]
    """The lines of each column's header."""
    widths: list[int]
    gap: int
    is_numbered: bool

    @property
    def cells(self) -> int:
        return sum(self.widths) + self.gap * len(self.widths)


def grid_view(columns: Sequence[StepColumn], members: Sequence[Member], width: int) -> list[Text]:
    from rich.text import Text

    names = [text_of(member.get("member")) for member in members]
    allowed = max(12, min(MEMBER_CELLS_MAX, int(width * MEMBER_SHARE)))
    member_cells = min(allowed, max([len("Member"), *map(len, names)]))
    available = width - member_cells
    layout = layout_of(columns, available)
    lines: list[Text] = []
    for block in _blocks([cells + layout.gap for cells in layout.widths], available):
        lines += [Text("")] if lines else []
        lines += _header(columns, layout, block, member_cells)
        lines += [_row(columns, layout, block, member, member_cells) for member in members]
    if layout.is_numbered:
        lines += [Text(""), *_key(columns)]
    notes = [Text(line, "dim") for line in removed_lines(members)]
    return [*lines, Text(""), _painted_legend(members), *notes, *(Text(line, "red") for line in error_lines(members))]


def layout_of(columns: Sequence[StepColumn], available: int) -> Layout:
    """The first that fits: full names, names broken at hyphens, the same with a smaller gap, or else numbers."""
    whole = [[clipped(text_of(column.step), HEADER_CELLS_MAX)] for column in columns]
    broken = [[clipped(part, HEADER_CELLS_MAX) for part in _parts(text_of(column.step))] for column in columns]
    for headers, gap in ((whole, 2), (broken, 2), (broken, 1)):
        widths = _widened(columns, [max(map(len, lines)) for lines in headers], gap)
        if (layout := Layout(headers, widths, gap, False)).cells <= available:
            return layout
    numbers = [[str(index)] for index in range(1, len(columns) + 1)]
    return Layout(numbers, [len(lines[0]) for lines in numbers], 2, True)


def _parts(name: str) -> list[str]:
    return re.findall(r"[^-_ ]+[-_ ]?|[-_ ]", name) or [""]


def _widened(columns: Sequence[StepColumn], widths: list[int], gap: int) -> list[int]:
    """Widens columns so that each phase's name fits above its steps."""
    widened = list(widths)
    by_phase: dict[str, list[int]] = {}
    for index, column in enumerate(columns):
        by_phase.setdefault(column.phase, []).append(index)
    for phase, indexes in by_phase.items():
        cells = sum(widths[index] for index in indexes) + gap * (len(indexes) - 1)
        widened[indexes[-1]] += max(0, min(len(phase), HEADER_CELLS_MAX) - cells)
    return widened


def _blocks(cells: Sequence[int], available: int) -> list[range]:
    """Splits columns into runs that fit beside the members' names; a column that is too wide gets its own block."""
    found, start, used = [], 0, 0
    for index, count in enumerate(cells):
        if used + count > available and index > start:
            found.append(range(start, index))
            start, used = index, 0
        used += count
    return [*found, range(start, len(cells))]


def _header(columns: Sequence[StepColumn], layout: Layout, block: range, member_cells: int) -> list[Text]:
    from rich.text import Text

    lines = [] if layout.is_numbered else [_phase_line(columns, layout, block, member_cells)]
    height = max((len(layout.headers[index]) for index in block), default=1)
    for level in range(height):
        name = "Member" if level == height - 1 else ""
        line = Text(name.ljust(member_cells), "dim", no_wrap=True)
        for index in block:
            parts = layout.headers[index]
            line.append(" " * layout.gap + (parts[level] if level < len(parts) else "").ljust(layout.widths[index]))
        line.rstrip()
        lines.append(line)
    return lines


def _row(columns: Sequence[StepColumn], layout: Layout, block: range, member: Member, member_cells: int) -> Text:
    from rich.text import Text

    known = statuses_of(member)
    name = clipped(text_of(member.get("member")), member_cells).ljust(member_cells)
    line = Text(no_wrap=True).append(name, STATUS_STYLES.get(standing(member), ""))
    for index in block:
        status = known.get(columns[index])
        sign = sign_of(status).ljust(layout.widths[index])
        line.append(" " * layout.gap + sign, STATUS_STYLES.get(status or "", ""))
    line.rstrip()
    return line


def _phase_line(columns: Sequence[StepColumn], layout: Layout, block: range, member_cells: int) -> Text:
    """The phases' names, each above its first column and truncated where the next begins."""
    from rich.text import Text

    line = Text(" " * member_cells, no_wrap=True)
    index = block.start
    while index < block.stop:
        phase, cells = columns[index].phase, 0
        while index < block.stop and columns[index].phase == phase:
            cells += layout.widths[index] + layout.gap
            index += 1
        shown = clipped(text_of(phase), cells - layout.gap).ljust(cells - layout.gap)
        line.append(" " * layout.gap).append(shown, "bold")
    line.rstrip()
    return line


def _key(columns: Sequence[StepColumn]) -> list[Text]:
    """`announce: 1 tell-user  2 look-up`"""
    from rich.text import Text

    numbers: dict[str, list[str]] = {}
    for index, column in enumerate(columns, start=1):
        numbers.setdefault(column.phase, []).append(f"{index} {text_of(column.step)}")
    return [Text(f"{text_of(phase)}: ", "bold").append(GAP.join(steps), "not bold") for phase, steps in numbers.items()]


def _painted_legend(members: Sequence[Member]) -> Text:
    from rich.text import Text

    line = Text()
    present = {status for member in members for status in statuses_of(member).values()}
    for status, sign in SIGNS.items():
        if status in present:
            line.append(f"{sign} {status}   ", STATUS_STYLES.get(status, ""))
    line.rstrip()
    return line
