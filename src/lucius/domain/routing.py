"""Routing: which of the 16 lanes a job's directives use. Decided once, at acceptance."""

from __future__ import annotations

from enum import StrEnum
from zlib import crc32

from msgspec import Struct

LANE_COUNT = 16


class Mode(StrEnum):
    DEFAULT = "DEFAULT"
    BURST = "BURST"


MODE_ALIASES = {"DEFAULT": Mode.DEFAULT, "SAFE": Mode.DEFAULT, "BURST": Mode.BURST}


class DecisionSource(StrEnum):
    REQUEST = "REQUEST"
    TENANT_CONFIG = "TENANT_CONFIG"
    GLOBAL_CONFIG = "GLOBAL_CONFIG"


class Routing(Struct, frozen=True):
    """The pinned decision and its origin."""

    resolved_mode: Mode
    decision_source: DecisionSource
    decision_reason: str
    routing_key_used: str
    lane: int

    @property
    def requested_mode(self) -> Mode | None:
        """The mode that the request asked for, which is always the one that was chosen; None if it named none."""
        return self.resolved_mode if self.decision_source is DecisionSource.REQUEST else None

    @property
    def topic(self) -> str:
        return LANE_TOPICS[self.lane]


def normal_form(name: str) -> str:
    """The form of a tenant or document id that routing, authorization, idempotency and limits use."""
    return name.strip().lower()


def lane_topic(lane: int) -> str:
    return f"global-bus-p{lane}"


LANE_TOPICS = tuple(lane_topic(lane) for lane in range(LANE_COUNT))

REPLY_TOPICS = tuple(f"global-bus-replies-p{lane}" for lane in range(LANE_COUNT))
"""Where services may answer directives of these lanes, instead of over HTTP."""


def resolve_mode(requested: Mode | None, tenant: Mode | None, default: Mode) -> tuple[Mode, DecisionSource, str]:
    """First hit wins: the request, the tenant's setting, the global setting."""
    if requested is not None:
        return requested, DecisionSource.REQUEST, f"the request asks for {requested.value}"
    if tenant is not None:
        return tenant, DecisionSource.TENANT_CONFIG, f"the tenant's setting is {tenant.value}"
    return default, DecisionSource.GLOBAL_CONFIG, f"the global setting is {default.value}"


def route(tenant_norm: str, doc_norm: str | None, mode: Mode, source: DecisionSource, reason: str) -> Routing:
    """Pin a lane. In BURST the document id is appended without a separator: a fixed rule, although ambiguous."""
    key = tenant_norm + (doc_norm or "") if mode is Mode.BURST else tenant_norm
    return Routing(mode, source, reason, key, crc32(key.encode()) % LANE_COUNT)
