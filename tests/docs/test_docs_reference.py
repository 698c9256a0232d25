"""The reference says what the code says: settings, errors, states, events, calls, registry."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest
from pages import DOCS, REFERENCE, ROOT, blocks, read, section, table_rows

from lucius.api.operations import OPERATIONS, Operation
from lucius.domain.attempt import DispatchStatus
from lucius.domain.errors import STATUS_OF
from lucius.domain.job import JobMove, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.step import StepMove, StepStatus
from lucius.ports.registry import Globals, Tenant
from lucius.registries.files import FileRegistry
from lucius.settings import Settings

DOMAIN = ROOT / "src" / "lucius" / "domain"

# --- Settings --------------------------------------------------------------------------------------------------------


def in_force(name: str, default: Any) -> Any:
    """Where a setting has no default, what holds if nobody says anything."""
    if default is not None:
        return default
    for holder in (Policy(), Globals()):
        if hasattr(holder, name):
            return getattr(holder, name)
    raise AssertionError(f"nothing holds for {name}")


def shown(value: Any) -> str:
    if value == "" or value == ():
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(one if isinstance(one, str) else f'{one:g}' for one in value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def kind_of(hint: Any) -> str:
    text = str(hint)
    for mark, kind in (("tuple", "list"), ("bool", "flag"), ("float", "number"), ("int", "whole")):
        if mark in text:
            return kind
    return "text"


def test_settings_page_has_every_variable_with_its_type_and_default() -> None:
    rows = table_rows(read(REFERENCE / "settings.md"))
    defaults = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    hints = get_type_hints(Settings)
    for name, default in defaults.items():
        variable = f"LUCIUS_{name.upper()}"
        assert variable in rows, f"docs/reference/settings.md does not name {variable}"
        _, kind, told, meaning, example = rows[variable]
        assert kind == kind_of(hints[name]), variable
        assert told == shown(in_force(name, default)), variable
        assert meaning, variable
        assert example, variable


def test_settings_page_has_no_variable_that_is_none() -> None:
    rows = table_rows(read(REFERENCE / "settings.md"))
    known = {f"LUCIUS_{name.upper()}" for name in Settings.__struct_fields__}
    assert {name for name in rows if name.startswith("LUCIUS_")} == known


# --- Errors ----------------------------------------------------------------------------------------------------------


def test_errors_page_has_every_code_with_its_status_in_order_of_precedence() -> None:
    rows = table_rows(read(REFERENCE / "errors.md"))
    for code, status in STATUS_OF.items():
        assert code in rows, f"docs/reference/errors.md does not name {code}"
        assert rows[code][1] == str(status), code
        assert all(rows[code]), code
    named = [code for code in rows if code in STATUS_OF]
    assert named == list(STATUS_OF)


# --- States ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def draw_states() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_states", DOCS / "draw_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_state_diagrams_are_as_the_tables_draw_them(draw_states: ModuleType) -> None:
    page = read(REFERENCE / "states.md")
    assert draw_states.drawn(page) == page, "run 'make diagrams'"


@pytest.mark.parametrize(
    ("heading", "names"),
    [("## Job", (JobStatus, JobMove)), ("## Step", (StepStatus, StepMove)), ("## Outbox row", (DispatchStatus,))],
)
def test_states_page_says_what_every_state_and_move_means(heading: str, names: tuple[Any, ...]) -> None:
    text = section(read(REFERENCE / "states.md"), heading)
    text = text.split("<!--")[0]
    for kind in names:
        for one in kind:
            assert f"\n| `{one.value}` | " in text, f"{heading}: {one.value}"


# --- Events ----------------------------------------------------------------------------------------------------------


def recorded() -> tuple[set[str], set[str], set[str]]:
    """Event types, data fields and failure codes, as the source of the brain has them."""
    types: set[str] = set()
    fields: set[str] = set()
    codes: set[str] = set()
    for path in (DOMAIN / "decide.py", DOMAIN / "draft.py", *(DOMAIN / "handlers").glob("*.py")):
        for node in ast.walk(ast.parse(read(path))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if called == "record":
                types.update(texts)
                fields.update(one.arg for one in node.keywords if one.arg)
            elif called in ("_match_callback", "end"):
                types.update(texts)
            elif called == "Failure":
                codes.update(texts[:1])
            elif called == "_fail":
                types.update(
                    str(one.value.value)
                    for one in node.keywords
                    if one.arg == "event" and isinstance(one.value, ast.Constant)
                )
    # A failure that names no other event is recorded under its own code; these two are never one.
    return types | (codes - {"STEP_FAILED", "DEADLINE_EXCEEDED"}), fields, codes


def test_events_page_has_every_type_and_field() -> None:
    page = read(REFERENCE / "events.md")
    types, fields, _ = recorded()
    assert len(types) >= 15
    rows = table_rows(page)
    for name in types:
        assert name in rows, f"docs/reference/events.md does not name {name}"
    for field in fields | {"verdict", "rate_limited", "reason", "redrive_of", "code", "message"}:
        assert f"`{field}`" in page, f"docs/reference/events.md does not name the field {field}"
    named = {name for name in rows if name.isupper()}
    assert named == types


def test_errors_page_has_every_failure_code() -> None:
    _, _, codes = recorded()
    text = section(read(REFERENCE / "errors.md"), "## Codes of failed steps and jobs")
    assert {name for name in table_rows(text) if name.isupper()} == codes


# --- HTTP ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_http_page_has_the_call(operation: Operation) -> None:
    text = section(read(REFERENCE / "http.md"), f"### `{operation.method} {operation.path}`")
    if operation.role is None:
        assert "No role" in text or "No authentication" in text
    else:
        assert f"Role `{operation.role}`" in text
        assert ("on all tenants" in text) == operation.on_all_tenants
    for parameter in operation.parameters:
        assert f"`{parameter.name}`" in text, parameter.name
    assert f"`{operation.status}" in text
    for code in operation.errors:
        assert f"`{code}`" in text, code
    listed = text[text.index("Errors: ") :] if "Errors: " in text else ""
    assert {code for code in STATUS_OF if f"`{code}`" in listed} == set(operation.errors)
    examples = "".join(content for _, content in blocks(text))
    # The example calls the address of this very operation, with the method that curl then uses.
    address = operation.path.replace("{job_id}", "$JOB").replace("{protocol_id}", "OCR_EMBEDDING_SIS")
    assert (
        address.replace("{name}", "$RUNBOOK")
        .replace("{batch_id}", "$BATCH")
        .replace("{phase}", "$PHASE")
        .replace("{operation_id}", "$OPERATION")
        .replace("{rehearsal_id}", "$REHEARSAL")
        .replace("{notification_id}", "$NOTIFICATION")
        in examples
    )
    is_post = " -d " in examples or "-X POST" in examples
    assert is_post == (operation.method == "POST")
    if operation.role is not None:
        assert '-H "$AUTH"' in examples


def test_http_page_has_no_call_that_is_none() -> None:
    headings = [line for line in read(REFERENCE / "http.md").splitlines() if line.startswith("### ")]
    assert headings != []
    assert sorted(headings) == sorted(f"### `{one.method} {one.path}`" for one in OPERATIONS)


# --- Registry --------------------------------------------------------------------------------------------------------


def registry_files(page: str) -> dict[str, str]:
    """YAML examples that say in their first line which file of a registry they are."""
    found = {}
    for language, content in blocks(page):
        name = content.partition("\n")[0].removeprefix("# ")
        if language == "yaml" and name.startswith(("globals.yaml", "protocols/", "tenants/")):
            found[name] = content
    return found


@pytest.mark.parametrize("page", ["reference/registry.md", "how-to/add-a-protocol.md", "how-to/tenants-and-limits.md"])
def test_registry_examples_load(page: str, tmp_path: Path) -> None:
    files = registry_files(read(DOCS / page))
    assert files
    if not any(name.startswith("protocols/") for name in files):
        files["protocols/any.yaml"] = registry_files(read(REFERENCE / "registry.md"))["protocols/invoice.yaml"]
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")
    snapshot = FileRegistry(tmp_path).snapshot()
    for name in files:
        if name.startswith("tenants/"):
            assert snapshot.tenants.keys() == {Path(name).stem}


def test_registry_page_says_which_backoffs_are_used() -> None:
    policy = Policy()
    page = " ".join((DOCS / "reference" / "registry.md").read_text("utf-8").split())
    used = policy.max_attempts - 1
    for backoffs in (policy.execution_backoff_seconds, policy.ack_backoff_seconds, policy.dispatch_backoff_seconds):
        assert len(backoffs) == used + 1, "one of them is for policies with more attempts"
    assert f"With the default of {policy.max_attempts} attempts, the first {used} of each list are used" in page


def test_registry_page_has_every_field() -> None:
    page = read(REFERENCE / "registry.md")
    for heading, shape in (("## Tenant", Tenant), ("## Globals", Globals), ("## Policy", Policy)):
        rows = table_rows(section(page, heading))
        for name in shape.__struct_fields__:
            assert name in rows, f"{heading} of docs/reference/registry.md does not name {name}"
    for name, default in ((name, getattr(Policy(), name)) for name in Policy.__struct_fields__):
        told = table_rows(section(page, "## Policy"))[name][1]
        assert told == (
            f"[{', '.join(f'{one:g}' for one in default)}]" if isinstance(default, tuple) else f"{default:g}"
        )


# --- Messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["directive", "ack", "heartbeat", "result"])
def test_messages_page_names_every_field_of_the_schema(name: str) -> None:
    import msgspec

    page = read(REFERENCE / "directive-and-callbacks.md")
    schema = msgspec.json.decode((DOMAIN / "schemas" / f"{name}.json").read_bytes())
    assert f"schemas/{name}.json)" in page
    clocks = {"completed_at", "sent_at"}  # The service's own clock: read by nobody.
    for field in schema["properties"].keys() - clocks:
        assert f"`{field}`" in page or f"`{field}:" in page, field


# --- lucius doctor ---------------------------------------------------------------------------------------------------


def test_every_part_that_doctor_asks_is_documented() -> None:
    named = {
        name
        for file in (ROOT / "src" / "lucius" / "doctor").glob("*.py")
        for name in re.findall(r'Part\(name="([^"]+)"', file.read_text())
    }
    rows = table_rows(section(read(REFERENCE / "cli.md"), "### `lucius doctor`"))
    documented = {name for cell in rows for name in cell.split(", ")} - {"part", "---"}
    assert documented == named
