"""Routing is pinned: these vectors may never change, because jobs, partitions and workers live by them."""

from __future__ import annotations

import pytest

from lucius.domain.routing import LANE_COUNT, LANE_TOPICS, DecisionSource, Mode, normal_form, resolve_mode, route

VECTORS = [
    ("acme", 14),
    ("globex", 10),
    ("initech", 0),
    ("tenant-1", 15),
    ("tenant-2", 5),
    ("acme corp", 1),
    ("größe", 9),
    ("a", 3),
]


def pin(tenant: str, doc: str | None, mode: Mode) -> tuple[str, int]:
    routing = route(tenant, doc, mode, DecisionSource.REQUEST, "a test")
    return routing.routing_key_used, routing.lane


@pytest.mark.parametrize(("tenant", "lane"), VECTORS)
def test_lane_is_the_crc32_of_the_tenant(tenant: str, lane: int) -> None:
    assert pin(tenant, None, Mode.DEFAULT) == (tenant, lane)
    assert pin(tenant, "a document that plays no part", Mode.DEFAULT) == (tenant, lane)


def test_burst_appends_the_document_plainly() -> None:
    assert pin("acme", "doc-42", Mode.BURST) == ("acmedoc-42", 8)
    assert pin("acmedoc", "-42", Mode.BURST) == ("acmedoc-42", 8)


def test_burst_spreads_one_tenant_over_every_lane() -> None:
    lanes = {pin("acme", f"doc-{number}", Mode.BURST)[1] for number in range(500)}
    assert lanes == set(range(LANE_COUNT))


def test_topics_are_named_after_their_lane() -> None:
    assert LANE_TOPICS[0] == "global-bus-p0"
    assert LANE_TOPICS[15] == "global-bus-p15"
    assert len(LANE_TOPICS) == LANE_COUNT == 16
    assert route("acme", None, Mode.DEFAULT, DecisionSource.REQUEST, "").topic == "global-bus-p14"


@pytest.mark.parametrize("name", ["Acme", "  ACME ", "acme\t"])
def test_normal_form_makes_one_tenant_of_many_spellings(name: str) -> None:
    assert normal_form(name) == "acme"


@pytest.mark.parametrize(
    ("requested", "tenant", "mode", "source"),
    [
        (Mode.BURST, Mode.DEFAULT, Mode.BURST, DecisionSource.REQUEST),
        (Mode.DEFAULT, Mode.BURST, Mode.DEFAULT, DecisionSource.REQUEST),
        (None, Mode.BURST, Mode.BURST, DecisionSource.TENANT_CONFIG),
        (None, None, Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG),
    ],
)
def test_mode_is_the_first_that_somebody_named(
    requested: Mode | None, tenant: Mode | None, mode: Mode, source: DecisionSource
) -> None:
    resolved, found, reason = resolve_mode(requested, tenant, Mode.DEFAULT)
    assert (resolved, found) == (mode, source)
    assert mode.value in reason
