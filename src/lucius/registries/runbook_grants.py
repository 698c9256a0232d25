"""What is wrong with the grants of runbooks in tenants' files: in one of them, and between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lucius.domain.routing import normal_form
from lucius.domain.runbook_tenants import NO_GRANTS, TENANT_CHARS_MAX, RunbookGrants, can_have_runbooks
from lucius.ports.registry import Tenant

GRANTS_MAX = 200

_CONNECTION = re.compile(r"LUCIUS_(?:SOURCE|NOTIFY)_[A-Z0-9_]{1,100}")
_WORKER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORMS = {
    "connections": (_CONNECTION, "a connection is named LUCIUS_SOURCE_ or LUCIUS_NOTIFY_, followed by A-Z 0-9 _"),
    "workers": (_WORKER, "a worker id has 1 to 64 of A-Z a-z 0-9 _ . -"),
    "own_workers": (_WORKER, "a worker id has 1 to 64 of A-Z a-z 0-9 _ . -"),
}


def grant_faults(tenant: Tenant) -> list[tuple[str, str]]:
    """Pairs of a pointer into the tenant's document and a sentence."""
    if tenant.runbooks == NO_GRANTS:
        return []
    faults: list[tuple[str, str]] = []
    if not can_have_runbooks(normal_form(tenant.id)):
        detail = (
            "this tenant cannot have runbooks: their names begin with its id, which therefore must have"
            f" 1 to {TENANT_CHARS_MAX} letters, digits, _ and -"
        )
        faults.append(("/runbooks", detail))
    for field, (form, advice) in _FORMS.items():
        names: tuple[str, ...] = getattr(tenant.runbooks, field)
        if len(names) > GRANTS_MAX:
            faults.append((f"/runbooks/{field}", f"at most {GRANTS_MAX} can be listed"))
        faults += [(f"/runbooks/{field}/{at}", advice) for at, name in enumerate(names) if not form.fullmatch(name)]
    return faults


def owner_faults(granted: Mapping[str, RunbookGrants]) -> Iterator[tuple[str, str, str]]:
    """Workers that one tenant owns and another one uses: the tenant that comes later, a pointer, and a sentence."""
    listed: dict[str, tuple[str, bool]] = {}
    for tenant, grants in granted.items():
        for field, is_owned in (("own_workers", True), ("workers", False)):
            for at, worker in enumerate(getattr(grants, field)):
                other, other_owns = listed.setdefault(worker, (tenant, is_owned))
                if other != tenant and (is_owned or other_owns):
                    owner = tenant if is_owned else other
                    detail = f"the worker {worker} is listed by {other} too, but the tenant that owns it, {owner}"
                    yield tenant, f"/runbooks/{field}/{at}", f"{detail}, does not share it"
