"""Templates: plain substitution, types kept, and data that is never read as a template."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucius.runbooks.core.definition.model import Step
from lucius.runbooks.core.definition.templates import (
    TemplateFault,
    UnknownVariable,
    Variable,
    finish,
    outputs_of,
    parse,
    resolve,
    variables_in,
)

SPECIALS = {"_batch_id": 42, "_batch_start_time": "2025-03-15T00:00:00Z"}
NONE: frozenset[str] = frozenset()

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
templates_as_data = st.sampled_from(["{{Key}}", "{{", "}}", "{{Out}}", "{{_batch_id}}", "{", "a{{Other}}b", ""])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | templates_as_data
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


def step(params: dict[str, Any] | None = None, function: str = "F", outputs: dict[str, str] | None = None) -> Step:
    return Step(name="move", worker_id="w", function=function, params=params or {}, output_params=outputs or {})


def filled(params: dict[str, Any], row: dict[str, Any], values: dict[str, Any] | None = None) -> Any:
    """Both halves of the way, with everything between them through JSON, as the tables keep it."""
    values = values or {}
    resolved = resolve(step(params), row, SPECIALS, frozenset(values))
    kept, late = msgspec.json.decode(msgspec.json.encode([resolved.params, resolved.late]))
    return finish(resolved.function, kept, late, values)[1]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("plain { text } {}", ("plain { text } {}",)),
        ("{{Key}}", (Variable("Key"),)),
        ('{"id":{{Key}}}', ('{"id":', Variable("Key"), "}")),
        ("{{ \tE-Mail (work) }}", (Variable("E-Mail (work)"),)),
        ("a {{B}}{{C}} d", ("a ", Variable("B"), Variable("C"), " d")),
    ],
)
def test_text_is_parsed_into_parts(text: str, parts: tuple[str | Variable, ...]) -> None:
    assert parse(text) == parts


@pytest.mark.parametrize(
    "text",
    ["{{", "}}", "{{a", "a}}", "{{}}", "{{  }}", "{{a}", "{{{a}}}}", "{{a{{b}}", "{{a\nb}}", "{{" + "a" * 129 + "}}"],
)
def test_braces_that_make_no_template_are_refused(text: str) -> None:
    with pytest.raises(TemplateFault):
        parse(text)


def test_variables_are_listed_with_their_places() -> None:
    found = variables_in(step({"A": ["x", "{{B}}"], "c/d": {"E": "{{F}} {{G}}"}, "{{key}}": 1}, "Do-{{H}}"))
    assert found == [("/function", "H"), ("/params/A/1", "B"), ("/params/c~1d/E", "F"), ("/params/c~1d/E", "G")]


def test_columns_and_specials_are_put_in_at_any_depth() -> None:
    params = {"A": [{"B": "{{Key}}"}], "C": "batch {{_batch_id}} at {{_batch_start_time}}", "D": 5, "{{Key}}": "k"}
    resolved = resolve(step(params, "Move-{{Key}}"), {"Key": "k1"}, SPECIALS, NONE)
    assert resolved.function == "Move-k1"
    assert resolved.params == {"A": [{"B": "k1"}], "C": "batch 42 at 2025-03-15T00:00:00Z", "D": 5, "{{Key}}": "k"}
    assert resolved.late is None


@pytest.mark.parametrize(
    ("value", "text"),
    [("s", "s"), (None, ""), (True, "true"), (1.5, "1.5"), ([1, "a"], '[1,"a"]'), ({"a": None}, '{"a":null}')],
)
def test_value_in_mixed_text_is_text(value: Any, text: str) -> None:
    assert filled({"A": "<{{Key}}>"}, {"Key": value}) == {"A": f"<{text}>"}
    assert filled({"A": "<{{Out}}>"}, {}, {"Out": value}) == {"A": f"<{text}>"}


def test_specials_win_over_outputs_and_outputs_over_columns() -> None:
    row = {"_batch_id": "column", "Name": "column"}
    resolved = resolve(step({"A": "{{_batch_id}}", "B": "{{Name}}"}), row, SPECIALS, frozenset({"_batch_id", "Name"}))
    assert resolved.params == {"A": 42, "B": None}
    assert resolved.late == {"/params/B": [{"var": "Name"}]}


def test_place_that_needs_an_output_is_put_aside_in_parts() -> None:
    template = {"A": "{{Key}} has {{Out}}", "B": ["{{Out}}"], "C": "{{Empty}}{{Out}}"}
    resolved = resolve(step(template, "F{{Out}}"), {"Key": "{{Out}}", "Empty": None}, SPECIALS, frozenset({"Out"}))
    assert resolved.params == {"A": None, "B": [None], "C": None}
    assert resolved.late == {
        "/function": [{"text": "F"}, {"var": "Out"}],
        "/params/A": [{"text": "{{Out}}"}, {"text": " has "}, {"var": "Out"}],
        "/params/B/0": [{"var": "Out"}],
        "/params/C": [{"text": ""}, {"var": "Out"}],
    }
    function, params = finish(resolved.function, resolved.params, resolved.late, {"Out": 7})
    assert (function, params) == ("F7", {"A": "{{Out}} has 7", "B": [7], "C": "7"})


def test_function_is_text_whatever_the_variable_is() -> None:
    assert resolve(step(function="{{Key}}"), {"Key": 5}, SPECIALS, NONE).function == "5"
    assert finish("{{Out}}", {}, {"/function": [{"var": "Out"}]}, {"Out": 5}) == ("5", {})


def test_column_names_match_exactly() -> None:
    with pytest.raises(UnknownVariable):
        resolve(step({"A": "{{key}}"}), {"Key": "k"}, SPECIALS, NONE)


def test_unknown_variables_are_named_with_step_place_and_what_is_known() -> None:
    row = {f"c{number}": "secret value" for number in range(20)}
    with pytest.raises(UnknownVariable) as unknown:
        resolve(step({"A": "{{Nope}} {{c1}}", "B": ["{{Nix}}"]}), row, SPECIALS, frozenset({"Out"}))
    message = str(unknown.value)
    assert unknown.value.names == ("Nope", "Nix")
    for words in ("step move", "{{Nope}} at /params/A", "{{Nix}} at /params/B/0", "_batch_id", "Out", "c6"):
        assert words in message
    assert "c7" not in message
    assert "secret" not in message


def test_missing_output_is_unknown_when_the_step_is_finished() -> None:
    with pytest.raises(UnknownVariable) as unknown:
        finish("F", {"A": None}, {"/params/A": [{"text": "a"}, {"var": "Out"}]}, {"Other": 1})
    assert unknown.value.names == ("Out",)
    assert "{{Out}} at /params/A" in str(unknown.value)
    assert "Other" in str(unknown.value)


def test_finish_changes_nothing_it_was_given() -> None:
    params = {"A": {"B": [None, "x"]}, "C": None}
    late = {"/params/A/B/0": [{"var": "Out"}], "/params/C": [{"text": "c"}, {"var": "Out"}]}
    before = copy.deepcopy((params, late))
    assert finish("F", params, late, {"Out": [1]}) == ("F", {"A": {"B": [[1], "x"]}, "C": "c[1]"})
    assert (params, late) == before


def test_finish_without_late_places_gives_what_it_got() -> None:
    assert finish("{{F}}", {"A": "{{Key}}"}, None, {}) == ("{{F}}", {"A": "{{Key}}"})


def test_outputs_are_taken_by_name_by_any_case_and_by_dots() -> None:
    asked = {"A": "Id", "B": "MOVEID", "C": "move.State.x", "D": "not.there", "E": "a.b", "F": "none", "G": "Id.x"}
    result = {
        "Id": 1,
        "id": 2,
        "moveId": [3],
        "Move": {"state": {"x": {"y": 4}}},
        "a.b": 5,
        "a": {"b": 6},
        "none": None,
    }
    found = outputs_of(step(outputs=asked), result)
    assert found == {"A": 1, "B": [3], "C": {"y": 4}, "E": 5, "F": None}


@pytest.mark.parametrize("result", [None, "text", 5, [{"Id": 1}], {}])
def test_result_without_the_field_gives_no_output(result: Any) -> None:
    assert outputs_of(step(outputs={"A": "Id"}), result) == {}


@given(values)
def test_value_alone_keeps_its_type(value: Any) -> None:
    expected = {"A": [value], "B": {"C": value}}
    assert filled({"A": ["{{Key}}"], "B": {"C": "{{ Key }}"}}, {"Key": value}) == expected
    assert filled({"A": ["{{Out}}"], "B": {"C": "{{ Out }}"}}, {}, {"Out": value}) == expected


@given(texts, texts)
def test_data_is_never_read_as_a_template(column: str, output: str) -> None:
    params = {"A": "{{Key}}", "B": "<{{Key}}|{{Out}}>", "C": "{{Out}}", "D": "{{Key}}{{Key}}", "E": ["{{Out}}{{Key}}"]}
    assert filled(params, {"Key": column, "Other": "expanded"}, {"Out": output}) == {
        "A": column,
        "B": f"<{column}|{output}>",
        "C": output,
        "D": column + column,
        "E": [output + column],
    }


@given(st.text("{} aK", max_size=12))
def test_any_text_parses_into_what_it_was_or_is_refused(text: str) -> None:
    try:
        parts = parse(text)
    except TemplateFault:
        assert "{{" in text or "}}" in text
        return
    names = [part.name for part in parts if isinstance(part, Variable)]
    assert all(name and name == name.strip() for name in names)
    rest = "".join(part for part in parts if isinstance(part, str))
    assert len(rest) + sum(len(name) + 4 for name in names) <= len(text)


@given(st.dictionaries(texts, values, max_size=4))
def test_params_without_templates_come_through_unchanged(params: dict[str, Any]) -> None:
    try:
        found = variables_in(step(params))
    except TemplateFault:
        return
    if not found:
        assert filled(params, {}) == params
