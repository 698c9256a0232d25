"""Runbooks of tenants: a runbook belongs to the tenant before the dot in its name, and without a dot to the operator.

The name is the one place that says whose a runbook is. Names never change, and everything that a runbook has made is
found by its name, so batches and members cannot change hands.
"""

from __future__ import annotations

import re

from msgspec import Struct

TENANT_CHARS_MAX = 64
TENANT_PATTERN = rf"[a-z0-9][a-z0-9_-]{{0,{TENANT_CHARS_MAX - 1}}}"
"""The ids, in normal form, of tenants that can have runbooks: they are part of names and addresses."""

_TENANT = re.compile(TENANT_PATTERN)


class RunbookGrants(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the runbooks of a tenant may use. By default nothing, so that the tenant has no runbooks."""

    connections: tuple[str, ...] = ()
    """Variables of the server that its data sources, calendars and recipients of notifications may name."""
    workers: tuple[str, ...] = ()
    """Worker ids that its steps may name; others may use them too."""
    own_workers: tuple[str, ...] = ()
    """The same, but nobody else's steps may name them. Keys that are limited to the tenant may take their jobs."""


NO_GRANTS = RunbookGrants()


def can_have_runbooks(tenant_id: str) -> bool:
    return _TENANT.fullmatch(tenant_id) is not None


def tenant_of_runbook(name: str) -> str | None:
    """The tenant that a runbook belongs to, in normal form; None: the operator."""
    tenant, dot, _ = name.partition(".")
    return tenant if dot else None
