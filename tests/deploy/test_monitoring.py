"""Dashboards and alerts: every metric in them exists, every expression parses, every alert has its page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from tests import node_packages
from tests.deploy.chart import ROOT
from tests.deploy.generators import load_generator

FOLDER = ROOT / "deploy" / "monitoring"
PAGES = ROOT / "docs" / "operate" / "alerts"
OF_PROMETHEUS = {"up"}
SUFFIXES = ("_bucket", "_sum", "_count")
_METRIC = re.compile(r"\b(?:lucius_[a-z_]+|up)\b")


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    boards = [json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))]
    return [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]


def expressions() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *dashboard_queries()]


def documented() -> set[str]:
    """The metrics of docs/reference/metrics.md, which a test compares with the code."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    return set(re.findall(r"^\| `(lucius_[a-z_]+)` \|", text, re.MULTILINE))


def test_every_metric_exists() -> None:
    known = documented() | OF_PROMETHEUS
    for expression in expressions():
        for name in _METRIC.findall(re.sub(r"\{[^}]*\}", "", expression)):
            if name.startswith("lucius_process_"):
                continue
            plain = next((name.removesuffix(end) for end in SUFFIXES if name.removesuffix(end) in known), name)
            assert plain in known, f"{name} in {expression}"


def test_every_expression_parses(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    modules = node_packages.install(Path(pytestconfig.cache.mkdir("npm")), node_packages.PROMQL)
    program = Path(__file__).parent / "parse_promql.cjs"
    node_packages.run([node_packages.node_program(), program, modules, json.dumps(expressions())])


def test_expression_that_does_not_parse_is_found(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    modules = node_packages.install(Path(pytestconfig.cache.mkdir("npm")), node_packages.PROMQL)
    program = Path(__file__).parent / "parse_promql.cjs"
    with pytest.raises(AssertionError, match="rate"):
        node_packages.run([node_packages.node_program(), program, modules, json.dumps(["sum(rate(lucius_x[5m])"])])


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    names = {rule["alert"] for rule in rules()}
    assert len(names) == len(rules())
    assert names == {path.stem for path in PAGES.glob("*.md")} - {"README"}
    listed = (PAGES / "README.md").read_text()
    for name in names:
        page = (PAGES / f"{name}.md").read_text()
        assert page.startswith(f"# {name}\n")
        for heading in ("## What it means", "## How to see it", "## What to do"):
            assert heading in page, name
        assert f"({name}.md)" in listed


def test_dashboards_are_made_from_the_generator() -> None:
    generator = load_generator(FOLDER / "generate.py")
    assert {path.stem for path in (FOLDER / "dashboards").glob("*.json")} == set(generator.DASHBOARDS)
    for name in generator.DASHBOARDS:
        made = (FOLDER / "dashboards" / f"{name}.json").read_text()
        assert made == generator.dashboard(name), f"{name}.json is stale: run 'make dashboards'"
