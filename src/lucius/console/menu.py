"""The menu: groups of pages, each shown only to those who may see it."""

from __future__ import annotations

from msgspec import Struct

from lucius.console.visitor import Visitor


class Entry(Struct, frozen=True):
    section: str
    """The `section` of the pages that belong to it."""
    words: str
    path: str
    role: str = "read"
    for_all_tenants: bool = False
    """Only for visitors who see all tenants."""


class Group(Struct, frozen=True):
    words: str
    """Empty: its entries stand alone."""
    entries: tuple[Entry, ...]


MENU = (
    Group("", (Entry("overview", "Overview", "/"),)),
    Group(
        "Jobs",
        (
            Entry("jobs", "Jobs", "/jobs"),
            Entry("submit", "Submit", "/submit", role="submit"),
            Entry("dead-letters", "Dead letters", "/dead-letters"),
            Entry("operations", "Operations", "/operations"),
        ),
    ),
    Group(
        "Runbooks",
        (
            Entry("runbooks", "Runbooks", "/runbooks"),
            Entry("batches", "Batches", "/batches"),
        ),
    ),
    Group(
        "System",
        (
            Entry("lanes", "Lanes", "/lanes", for_all_tenants=True),
            Entry("workers", "Workers", "/workers", for_all_tenants=True),
            Entry("tenants", "Tenants", "/tenants"),
            Entry("protocols", "Protocols", "/protocols"),
            Entry("audit", "Audit", "/audit"),
        ),
    ),
)


def menu_for(visitor: Visitor | None) -> list[Group]:
    if visitor is None:
        return []
    groups = (Group(group.words, tuple(one for one in group.entries if _is_for(one, visitor))) for group in MENU)
    return [group for group in groups if group.entries]


def _is_for(entry: Entry, visitor: Visitor) -> bool:
    return visitor.may(entry.role) and (visitor.sees_all or not entry.for_all_tenants)
