"""What a run may be asked to do, and the commands that it makes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lucius.load.commands import Commands, services_of, smallest, smallest_payload
from lucius.load.plan import JOBS_DEFAULT, JOBS_MAX, LoadPlan, Mix, PlanError, read_work_ms


def test_a_plan_is_bounded_by_jobs_or_by_time() -> None:
    assert LoadPlan().jobs_max == JOBS_DEFAULT
    assert LoadPlan(seconds=5).jobs_max == JOBS_MAX
    assert LoadPlan(seconds=5, jobs=7).jobs_max == 7


@pytest.mark.parametrize(
    "options",
    [{"jobs": 0}, {"jobs": JOBS_MAX + 1}, {"seconds": 0.0}, {"in_flight": 0}, {"in_flight": 1_001}, {"rate": 0.0},
     {"rate": float("nan")}, {"tenants": 0}, {"drain_seconds": -1.0}, {"seed": -1}],
)  # fmt: skip
def test_a_plan_beyond_its_limits_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=f"--{next(iter(options)).replace('_', '-')}"):
        LoadPlan(**options)


def test_due_commands_follow_the_rate_and_stop_with_the_plan() -> None:
    plan = LoadPlan(rate=10.0, seconds=2.0)
    assert [plan.due(elapsed) for elapsed in (0.0, 0.05, 0.1, 1.0, 2.0, 60.0)] == [1, 1, 2, 11, 20, 20]
    assert LoadPlan(rate=10.0, jobs=5).due(60.0) == 5
    assert LoadPlan(jobs=5).due(60.0) == 0


@pytest.mark.parametrize(("text", "read"), [("0", (0, 0)), ("20", (20, 20)), (" 5-80 ", (5, 80))])
def test_work_ms_is_a_time_or_a_range(text: str, read: tuple[int, int]) -> None:
    assert read_work_ms(text) == read


@pytest.mark.parametrize("text", ["", "x", "-5", "80-5", "1.5", "5-", "600001", "1-2-3"])
def test_work_ms_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        read_work_ms(text)


def test_shares_that_exclude_each_other_must_not_exceed_a_hundred() -> None:
    assert Mix(fail_retryable=60.0, lose=40.0, duplicate=100.0).lose == 40.0
    with pytest.raises(PlanError, match="120"):
        Mix(fail_retryable=60.0, lose=60.0)
    with pytest.raises(PlanError):
        Mix(duplicate=101.0)


def test_fates_follow_the_shares_and_repeat_with_the_seed() -> None:
    mix = Mix(work_ms=(10, 30), fail_retryable=20.0, fail_final=10.0, rate_limit=5.0, lose=5.0, duplicate=50.0)
    fates = [mix.behaviour(7, number, "ocr", 1) for number in range(4_000)]
    assert fates == [mix.behaviour(7, number, "ocr", 1) for number in range(4_000)]
    assert fates != [mix.behaviour(8, number, "ocr", 1) for number in range(4_000)]
    assert fates != [mix.behaviour(7, number, "ocr", 2) for number in range(4_000)]
    counted = Counter(fate.verdict for fate in fates)
    wanted = {"failed_retryable": 20, "failed_final": 10, "rate_limited": 5, "lost": 5, "succeeded": 60}
    for verdict, percent in wanted.items():
        assert counted[verdict] / 40 == pytest.approx(percent, abs=3)
    assert sum(fate.duplicate for fate in fates) / 40 == pytest.approx(50, abs=3)
    assert all(0.010 <= fate.work_seconds <= 0.030 for fate in fates)


def test_a_mix_of_nothing_lets_everything_succeed_at_once() -> None:
    assert {
        (fate.verdict, fate.work_seconds, fate.duplicate) for fate in (Mix().behaviour(1, n) for n in range(500))
    } == {("succeeded", 0.0, False)}


def test_commands_have_keys_of_their_own_and_turns_of_tenants() -> None:
    template = {"tenant_id": "acme", "request_type": "OCR", "idempotency_key": "mine"}
    commands = Commands(template, tenants=3)
    made = [commands.envelope(number) for number in range(1, 7)]
    assert [one["tenant_id"] for one in made] == ["load-1", "load-2", "load-3"] * 2
    assert len({one["idempotency_key"] for one in made}) == 6
    assert [commands.number_of(one["correlation_id"]) for one in made] == [1, 2, 3, 4, 5, 6]
    another = Commands(template, tenants=None)
    assert another.envelope(1)["tenant_id"] == "acme"
    assert commands.number_of(another.envelope(1)["correlation_id"]) is None
    assert commands.number_of(None) is None
    assert (commands.tenant_id, another.tenant_id, Commands(template, 1).tenant_id) == (None, "acme", "load-1")


def test_smallest_payload_has_what_is_required_where_it_is_looked_for() -> None:
    prompts = {"type": "array", "minItems": 2, "items": {"type": "string", "minLength": 6}}
    steps = [
        {"service": "ocr", "payload_pointer": "/ocr", "payload_schema": {"type": "object"}},
        {
            "service": "sis",
            "payload_pointer": "/deep/a~1b",
            "payload_schema": {
                "required": ["prompts", "form"],
                "properties": {"prompts": prompts, "form": {"enum": [3]}},
            },
        },
        {"service": "ocr", "payload_pointer": "/again", "payload_schema": {"type": "object"}},
    ]
    wanted = {"ocr": {}, "deep": {"a/b": {"prompts": ["loadxx", "loadxx"], "form": 3}}, "again": {}}
    assert smallest_payload({"steps": steps}) == wanted
    assert services_of({"steps": steps}) == ["ocr", "sis"]


def test_smallest_payload_of_a_step_that_reads_all_of_it() -> None:
    schema = {"required": ["n"], "properties": {"n": {"type": "integer", "minimum": 5}}}
    assert smallest_payload({"steps": [{"payload_pointer": "", "payload_schema": schema}]}) == {"n": 5}


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "boolean"}, True), ({"type": ["null", "string"]}, None), ({"const": 4}, 4), ({"default": "a"}, "a"),
     ({"anyOf": [{"type": "integer", "maximum": 0}, {"type": "string"}]}, 0), ({"type": "number"}, 1), (True, {})],
)  # fmt: skip
def test_smallest_value_of_a_schema(schema: Any, value: Any) -> None:
    assert smallest(schema) == value
