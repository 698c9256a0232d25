"""Topics by themselves: rules with SQL and correlation filters, actions, duplicates, schedules, limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import message, text_of

from lucius.testing.servicebus.filters import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TrueFilter
from lucius.testing.servicebus.message import Message
from lucius.testing.servicebus.namespace import Namespace, path_of
from lucius.testing.servicebus.refusals import Refusal
from lucius.testing.servicebus.settings import NamespaceSettings, QueueSettings, SubscriptionSettings, TopicSettings
from lucius.testing.servicebus.sql import compile_action, compile_filter
from lucius.testing.servicebus.sql_tokens import SqlError
from lucius.testing.servicebus.types import Int, UInt

SAMPLE = message(
    message_id="m1", subject="step", to="x", session_id="s", service="ocr", n=Int(3), price=1.5, ok=True, text="50%_off"
)

TRUE = [
    "service = 'ocr'",
    "user.service = 'ocr' AND n = 3",
    "sys.Label = 'step' and SYS.MessageId = 'm1'",
    "[service] = 'ocr'",
    "\"service\" <> 'sis'",
    "n + 1 >= 4 AND n * 2 = 6 AND n / 2 = 1.5 AND n % 2 = 1",
    "-n < 0",
    "price > 1",
    "ok = TRUE",
    "NOT ok = FALSE",
    "missing IS NULL AND service IS NOT NULL",
    "EXISTS(service) AND NOT EXISTS(missing)",
    "service IN ('sis', 'ocr')",
    "service NOT IN ('sis')",
    "service LIKE 'o%' AND service LIKE '_cr'",
    "text LIKE '50!%!_%' ESCAPE '!'",
    "text NOT LIKE 'x%'",
    "missing = 1 OR service = 'ocr'",
    "(n = 4 OR n = 3) AND (1 = 1)",
    "'it''s' = 'it''s'",
    "service + '!' = 'ocr!'",
]
NOT_TRUE = [
    "service = 'OCR'",
    "missing = 'x'",
    "missing <> 'x'",
    "NOT missing = 'x'",
    "service = 3",
    "n = '3'",
    "missing IN ('x')",
    "n NOT IN (3)",
    "missing LIKE '%'",
    "n / 0 = 1",
    "n * 9999999999999999999 > 0",
    "1 = 0",
]
MALFORMED = [
    "",
    "service =",
    "service = 'x",
    "= 1",
    "service LIKE",
    "service IS 1",
    "sys.Nothing = 1",
    "newid() = 1",
    "a = 1 AND",
    "(a = 1",
    "a = 1)",
    "a NOT 1",
    "a IN ()",
    "a @ b",
    "a = " + "(" * 400 + "1",
    "a = '" + "x" * 2_000 + "'",
]


@pytest.mark.parametrize("text", TRUE)
def test_a_sql_filter_matches(text: str) -> None:
    assert compile_filter(text)(SAMPLE)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_a_sql_filter_does_not_match(text: str) -> None:
    assert not compile_filter(text)(SAMPLE)


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(SqlError):
        compile_filter(text)


@settings(deadline=None)
@given(st.text(st.sampled_from("ab'\"[]().,=<>!+-*/% 01ANDORNOTINLIKESsy"), max_size=40))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        compile_filter(text)(SAMPLE)
    except SqlError:
        return


def test_an_action_sets_and_removes_properties() -> None:
    change = compile_action("SET sys.To = 'Entity'; SET n = n + 1\nREMOVE service; REMOVE sys.Subject")
    changed = change(SAMPLE)
    assert changed.value_of("to") == "Entity"
    assert changed.application_properties["n"] == 4
    assert "service" not in changed.application_properties
    assert changed.value_of("subject") is None
    assert SAMPLE.value_of("to") == "x"
    with pytest.raises(SqlError):
        compile_action("DROP TABLE x")


@pytest.mark.parametrize(
    ("found", "matches"),
    [
        (CorrelationFilter({"subject": "step"}), True),
        (CorrelationFilter({"subject": "other"}), False),
        (CorrelationFilter({}, {"service": "ocr"}), True),
        (CorrelationFilter({"message_id": "m1"}, {"service": "ocr", "n": 3}), True),
        (CorrelationFilter({}, {"n": "3"}), False),
        (CorrelationFilter({}, {"ok": 1}), False),
        (CorrelationFilter({}, {"missing": "x"}), False),
        (TrueFilter(), True),
        (FalseFilter(), False),
        (SqlFilter("n = 3"), True),
    ],
)
def test_filters_match(found: Filter, matches: bool) -> None:
    assert found.matches(SAMPLE) is matches


def test_a_correlation_filter_compares_something_that_exists() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CorrelationFilter()
    with pytest.raises(ValueError, match="cannot compare"):
        CorrelationFilter({"colour": "red"})


# --- Namespaces ------------------------------------------------------------------------------------------------------


def namespace(duplicate_seconds: float | None = None, **subscriptions: Any) -> Namespace:
    topic = TopicSettings(duplicate_seconds=duplicate_seconds, size_bytes_max=10_000)
    for name, rules in subscriptions.items():
        topic.subscriptions[name] = SubscriptionSettings(QueueSettings(), rules or [Rule.default()])
    return Namespace(NamespaceSettings({"work": QueueSettings(duplicate_seconds=60)}, {"lane": topic}))


def texts(bus: Namespace, path: str) -> list[str]:
    return [text_of(stored.message) for stored in bus.queue(path)]


def test_each_subscription_gets_its_own_copy_of_what_its_rules_let_through() -> None:
    bus = namespace(
        everything=None,
        ocr=[Rule("r", CorrelationFilter({}, {"service": "ocr"}))],
        either=[Rule("a", SqlFilter("service = 'ocr'")), Rule("b", SqlFilter("service = 'sis'"))],
        nothing=[Rule("f", FalseFilter())],
    )
    bus.publish("Lane", [message("1", service="ocr"), message("2", service="sis"), message("3")], 0)
    assert texts(bus, "lane/subscriptions/everything") == ["1", "2", "3"]
    assert texts(bus, "LANE/Subscriptions/OCR") == ["1"]
    assert texts(bus, "lane/subscriptions/either") == ["1", "2"]
    assert texts(bus, "lane/subscriptions/nothing") == []
    assert bus.queue("lane/subscriptions/ocr").take(1) is not None
    assert len(bus.queue("lane/subscriptions/everything")) == 3


def test_rules_with_actions_each_make_a_copy() -> None:
    bus = namespace(s=[Rule("plain", TrueFilter()), Rule("marked", TrueFilter(), "SET mark = 1")])
    bus.publish("lane", [message("x")], 0)
    copies = [stored.message for stored in bus.queue("lane/subscriptions/s")]
    assert [copy.application_properties for copy in copies] == [{}, {"mark": 1}]


def test_a_duplicate_within_the_window_is_dropped() -> None:
    bus = namespace(duplicate_seconds=60, s=None)
    first, _ = bus.publish("lane", [message("1", message_id="m"), message("2", message_id="m")], 0)
    assert first == [1, 1]
    assert bus.publish("lane", [message("3", message_id="m")], 59)[0] == [1]
    assert bus.publish("lane", [message("4", message_id="m")], 60)[0] == [2]
    bus.publish("lane", [message("5"), message("6")], 61)
    assert texts(bus, "lane/subscriptions/s") == ["1", "4", "5", "6"], "what has no id is never a duplicate"


def test_a_scheduled_message_of_a_topic_meets_the_rules_when_it_is_due() -> None:
    bus = namespace(s=None)
    numbers, _ = bus.publish("lane", [message("1", due_at=10), message("2", due_at=20), message("past", due_at=1)], 5)
    assert texts(bus, "lane/subscriptions/s") == ["past"]
    bus.entity("lane").cancel_scheduled([numbers[1]])
    with pytest.raises(Refusal, match="no such message"):
        bus.entity("lane").cancel_scheduled([numbers[1]])
    bus.advance(30)
    assert texts(bus, "lane/subscriptions/s") == ["past", "1"]


def test_a_full_entity_takes_all_of_a_batch_or_none() -> None:
    bus = namespace(s=None)
    with pytest.raises(Refusal) as refused:
        bus.publish("lane", [message("x"), message("x" * 20_000)], 0)
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    assert texts(bus, "lane/subscriptions/s") == []


def test_a_message_without_session_is_refused_by_a_queue_and_dead_lettered_by_a_subscription() -> None:
    topic = TopicSettings(subscriptions={"s": SubscriptionSettings(QueueSettings(requires_session=True))})
    bus = Namespace(NamespaceSettings({"q": QueueSettings(requires_session=True)}, {"t": topic}))
    with pytest.raises(Refusal, match="requires sessions"):
        bus.publish("q", [message()], 0)
    bus.publish("t", [message()], 0)
    (dead,) = bus.queue("t/subscriptions/s/$deadletterqueue")
    assert dead.message.application_properties["DeadLetterReason"] == "Session ID is null"


def test_entities_have_one_name_and_can_be_deleted() -> None:
    bus = namespace(s=None)
    for name in ("WORK", "lane", "", "a$b", "x" * 300):
        with pytest.raises(Refusal):
            bus.create_topic(name, TopicSettings())
    with pytest.raises(Refusal):
        bus.create_subscription("lane", "S", SubscriptionSettings())
    bus.delete_subscription("lane", "s")
    with pytest.raises(Refusal):
        bus.queue("lane/subscriptions/s")
    bus.delete("lane")
    for call in (bus.entity, bus.topic, bus.queue):
        with pytest.raises(Refusal, match="could not be found"):
            call("lane")
    with pytest.raises(Refusal):
        bus.topic("work")
    assert path_of("amqps://host:1/Lane/Subscriptions/S/") == "lane/subscriptions/s"


def test_wire_types_are_plain_numbers_for_sql() -> None:
    found = Message.parse(message(n=UInt(7)).encoded(0, {}))
    assert compile_filter("n = 7 AND n + 1 = 8")(found)
