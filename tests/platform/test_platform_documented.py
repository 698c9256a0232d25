"""docs/reference/platform.md says what the kit does: settings, metrics, codes, names."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import lucius.platform
from lucius.platform import Directive, PlatformSettings, Workspace, rehearse
from lucius.platform.metrics import Metrics
from lucius.platform.orchestrator import Callback, CallbackAnswer
from lucius.platform.settings import name_of
from lucius.platform.worker import ACK_SECONDS_MAX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "platform.md").read_text("utf-8")
KIT = ROOT / "src" / "lucius" / "platform"
INNER_FIELDS = {"callback_token", "rehearsed_seconds"}
KIT_CODES = re.compile(r'(?:NonRetryable|Retryable|RateLimited)\(\s*"([A-Z_]+)"')
FILE_CODES = {"INPUT_NOT_FOUND", "INPUT_FORBIDDEN", "OUTPUT_FORBIDDEN"}


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the tables under a heading, by their first cell."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0].strip(" `"): row for row in cells if row[0].strip(" `-")}


def test_every_setting_is_told_with_its_default_and_limits() -> None:
    told = {name: row for name, row in rows("Settings").items() if name.startswith("LUCIUS_")}
    assert list(told) == [name_of(one.name) for one in fields(PlatformSettings)]
    for one in fields(PlatformSettings):
        _, default, limits, meaning = told[name_of(one.name)]
        is_flag, is_number = isinstance(one.default, bool), isinstance(one.default, float)
        shown = str(one.default).lower() if is_flag else f"{one.default:g}" if is_number else one.default
        assert default == ("empty" if one.default == "" else f"`{shown}`"), one.name
        if "max" in one.metadata:
            assert limits == f"{one.metadata['min']} to {one.metadata['max']}", one.name
        for choice in one.metadata.get("choices", ()):
            assert f"`{choice}`" in limits
        assert meaning


def test_how_long_an_ack_is_tried_is_told() -> None:
    lifecycle = PAGE.partition("\n## Directive lifecycle\n")[2].partition("\n## ")[0]
    told = re.findall(r"retried for up to (\d+) minutes|no response within (\d+) minutes", lifecycle)
    assert {float(first or second) * 60 for first, second in told} == {ACK_SECONDS_MAX}
    assert "30 s" not in lifecycle


def test_every_metric_is_told_with_its_kind_and_labels() -> None:
    metrics = Metrics("ocr")
    metrics.directive("new")
    metrics.attempt("OCR", "SUCCEEDED", 1.0)
    metrics.callback(Callback("ACK", {}, "token"), CallbackAnswer("APPLIED", accepted=True))
    metrics.watch(in_work=lambda: 1, owed=lambda: 1)
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for one in family.samples for label in one.labels} - {"service", "le"}
        if not name.endswith("_created"):  # The library's own: when a series began.
            found[name] = (family.type, labels)
    told = {name: row for name, row in rows("Metrics").items() if name.startswith("lucius_")}
    shown = {name: (row[1], set(re.findall(r"`(\w+)`", row[2]))) for name, row in told.items()}
    assert shown == found


def test_every_code_of_the_kit_is_told_and_no_other() -> None:
    source = "".join(path.read_text("utf-8") for path in KIT.glob("*.py"))
    raised = set(KIT_CODES.findall(source))
    assert raised >= FILE_CODES
    told: dict[str, str] = {}
    for row in rows("How it fails").values():
        for code in re.findall(r"`([A-Z_]{4,})`", row[0]) or re.findall(r"`([A-Z_]{4,})`", row[2]):
            told[code] = row[1].strip("`")
    assert set(told) == raised
    for code, failure_class in told.items():
        kinds = set(re.findall(rf'(NonRetryable|Retryable|RateLimited)\(\s*"{code}"', source))
        names = {"NON_RETRYABLE": "NonRetryable", "RETRYABLE": "Retryable", "RATE_LIMITED": "RateLimited"}
        assert kinds == {names[failure_class]}, code


def test_every_field_of_a_directive_is_told() -> None:
    for one in fields(Directive):
        assert (f"`{one.name}`" in PAGE) == (one.name not in INNER_FIELDS), one.name


@pytest.mark.parametrize("name", [name for name in vars(Workspace) if not name.startswith("_")])
def test_every_method_of_a_workspace_is_told(name: str) -> None:
    assert f"`workspace.{name}{'`' if isinstance(vars(Workspace)[name], property) else '('}" in PAGE


def test_every_name_that_the_kit_offers_is_on_the_page() -> None:
    told_elsewhere = {
        "Rehearsed",
        "StepFailed",
        "PlatformSettings",
        "read_settings",
        "Attempt",
        "Directive",
        "Workspace",
    }
    for name in set(lucius.platform.__all__) - told_elsewhere:
        assert name in PAGE, name
    for name in told_elsewhere:
        assert name in lucius.platform.__all__


def test_the_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code, "example", "exec"), names)
    rehearsed = rehearse(names["service"], "OCR", tmp_path, input="text")  # type: ignore[arg-type]
    assert rehearsed.result["status"] == "SUCCEEDED"
    assert rehearsed.output.read_text() == "TEXT"


def test_the_page_is_in_the_list_of_pages() -> None:
    assert "(reference/platform.md)" in (ROOT / "docs" / "README.md").read_text("utf-8")
