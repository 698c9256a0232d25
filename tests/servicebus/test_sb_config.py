"""Config.json of Microsoft's emulator: read whole, and refused with every fault at its place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucius.testing.servicebus.config import ConfigError, read_config, settings_of
from lucius.testing.servicebus.durations import FOR_EVER, duration_of, seconds_of
from lucius.testing.servicebus.filters import CorrelationFilter, SqlFilter, TrueFilter
from lucius.testing.servicebus.settings import SECONDS_MAX

CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT2H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "subscription.1",
                                "Properties": {"LockDuration": "PT30S", "MaxDeliveryCount": 5, "RequiresSession": True},
                                "Rules": [
                                    {
                                        "Name": "app-prop-filter-1",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "Label": "subject1",
                                                "Properties": {"prop1": "value1"},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "sql-1",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.MessageId = '1' AND a = 'b'"},
                                            "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "subscription.2"},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def test_the_whole_file_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(CONFIG), "utf-8-sig")
    settings = read_config(path)
    queue = settings.queues["queue.1"]
    assert (queue.lock_seconds, queue.max_delivery_count, queue.ttl_seconds) == (60, 3, 3600)
    assert (queue.duplicate_seconds, queue.dead_letters_expired, queue.requires_session) == (20, True, False)
    topic = settings.topics["topic.1"]
    assert (topic.ttl_seconds, topic.duplicate_seconds) == (7200, None)
    first, second = topic.subscriptions["subscription.1"], topic.subscriptions["subscription.2"]
    assert (first.queue.lock_seconds, first.queue.max_delivery_count, first.queue.requires_session) == (30, 5, True)
    correlation, sql = first.rules
    expected = CorrelationFilter({"content_type": "application/text", "subject": "subject1"}, {"prop1": "value1"})
    assert correlation.filter == expected
    assert isinstance(sql.filter, SqlFilter)
    assert sql.action == "SET sys.To = 'Entity'"
    assert [type(rule.filter) for rule in second.rules] == [TrueFilter]


def changed(path: str, value: Any) -> Any:
    document = copy.deepcopy(CONFIG)
    at: Any = document
    *parents, last = path.strip("/").split("/")
    for key in parents:
        at = at[int(key) if key.isdigit() else key]
    at[int(last) if last.isdigit() else last] = value
    return document


SPACE = "/UserConfig/Namespaces/0"
QUEUE = f"{SPACE}/Queues/0/Properties"
RULE = f"{SPACE}/Topics/0/Subscriptions/0/Rules/1/Properties"


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("/UserConfig", [], "/UserConfig: must be an object"),
        ("/UserConfig/Namespaces", [], "/UserConfig/Namespaces: one namespace is needed"),
        (f"{SPACE}/Queues/0/Name", "", f"{SPACE}/Queues/0/Name: must be a name"),
        (f"{SPACE}/Topics/0/Name", "QUEUE.1", f"{SPACE}/Topics/0/Name: 'QUEUE.1' is the name of a queue too"),
        (f"{QUEUE}/LockDuration", "PT6M", f"{QUEUE}/LockDuration: must be longer than nothing and at most"),
        (f"{QUEUE}/LockDuration", "soon", f"{QUEUE}/LockDuration: 'soon' is no duration"),
        (f"{QUEUE}/MaxDeliveryCount", 0, f"{QUEUE}/MaxDeliveryCount: must be a whole number from 1"),
        (f"{QUEUE}/RequiresSession", "maybe", f"{QUEUE}/RequiresSession: must be true or false"),
        (f"{QUEUE}/ForwardTo", "queue.2", f"{QUEUE}/ForwardTo: forwarding is not supported"),
        (f"{QUEUE}/EnablePartitioning", True, f"{QUEUE}/EnablePartitioning: is not supported"),
        (f"{QUEUE}/Colour", "red", f"{QUEUE}/Colour: is no property that is known here"),
        (f"{RULE}/SqlFilter", {"SqlExpression": "a ="}, f"{RULE}: Position 3"),
        (f"{RULE}/FilterType", "Odd", f"{RULE}: a rule needs FilterType"),
        (f"{RULE}/Action", {"SqlExpression": "DROP x"}, f"{RULE}: Position 0: SET or REMOVE was expected"),
    ],
)
def test_a_fault_is_named_by_its_place(path: str, value: Any, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_of(changed(path, value))
    assert refused.value.faults[0].startswith(fault)


def test_every_fault_is_reported_at_once(tmp_path: Path) -> None:
    document = changed(f"{QUEUE}/LockDuration", "soon")
    document["UserConfig"]["Namespaces"][0]["Queues"].append({"Name": "Queue.1"})
    with pytest.raises(ConfigError) as refused:
        settings_of(document)
    assert len(refused.value.faults) == 2
    path = tmp_path / "Config.json"
    path.write_text("{", "utf-8")
    with pytest.raises(ConfigError, match="not JSON"):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT30S", 30),
        ("PT1M", 60),
        ("PT1H30M", 5400),
        ("P14D", 14 * 86_400),
        ("P1DT1S", 86_401),
        (FOR_EVER, SECONDS_MAX),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "30", "P1", "PT1X", "P1DT", "-PT1S", "PT1S "])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds_of(text)


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_durations_survive_writing(milliseconds: int) -> None:
    assert seconds_of(duration_of(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)
