"""The administration API without its sockets: from a request to a response, on the namespace itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit
from xml.etree.ElementTree import Element

from lucius.testing.http_server import Request, Response
from lucius.testing.servicebus import atom
from lucius.testing.servicebus.durations import duration_of
from lucius.testing.servicebus.filters import Rule
from lucius.testing.servicebus.namespace import Namespace, QueueEntity, Subscription, Topic, path_of
from lucius.testing.servicebus.properties import MEGABYTE, PropertyReader
from lucius.testing.servicebus.refusals import Refusal, argument_error, entity_exists, entity_not_found
from lucius.testing.servicebus.settings import QueueSettings, SubscriptionSettings, TopicSettings
from lucius.testing.servicebus.tokens import TokenChecker

PAGE_MAX = 100
CONTENT_TYPE = "application/atom+xml;charset=utf-8"
READ_ONLY = {"AccessedAt", "CreatedAt", "UpdatedAt", "EntityAvailabilityStatus", "IsAnonymousAccessible"}
READ_ONLY |= {"MessageCount", "Name", "SizeInBytes", "SubscriptionCount"}
"""What clients that change a description send back with it."""


class Administration:
    def __init__(self, namespace: Namespace, tokens: TokenChecker, dropped: Callable[[str], Any]) -> None:
        self._namespace = namespace
        self._tokens = tokens
        self._dropped = dropped
        """Called with the path of an entity that is gone, so that its links go too."""

    def handle(self, request: Request) -> Response:
        try:
            self._tokens.check(request.headers.get("authorization", ""))
            return self._route(request)
        except Refusal as refusal:
            return _answer(refusal.status, atom.text_of(atom.error(refusal.status, refusal.description)))
        except ValueError as error:
            return _answer(400, atom.text_of(atom.error(400, str(error))))

    def _route(self, request: Request) -> Response:
        parts = urlsplit(request.target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        segments = [unquote(segment) for segment in parts.path.strip("/").split("/")]
        lower = [segment.lower() for segment in segments]
        if lower[0] == "$resources" and len(segments) == 2 and request.method == "GET":
            return self._list_entities(lower[1], parts.path, query)
        if lower[0] == "$namespaceinfo" and request.method == "GET":
            return self._namespace_info()
        if "subscriptions" not in lower[1:]:
            return self._entity("/".join(segments), request)
        at = lower.index("subscriptions", 1)
        topic, rest = "/".join(segments[:at]), segments[at + 1 :]
        if not rest and request.method == "GET":
            found = self._namespace.topic(topic).subscriptions.values()
            return self._page(parts.path, query, [(one.name, _subscription_description(one)) for one in found])
        if len(rest) == 1:
            return self._subscription(topic, rest[0], request)
        if len(rest) in (2, 3) and rest[1].lower() == "rules":
            return self._rules(topic, rest[0], rest[2] if len(rest) == 3 else None, request, query)
        raise entity_not_found(parts.path)

    # --- Queues and topics -------------------------------------------------------------------------------------------

    def _entity(self, name: str, request: Request) -> Response:
        existing = self._namespace.entities.get(path_of(name))
        if request.method == "GET":
            if existing is None:
                return _ok(atom.feed(name, []))  # As Service Bus has it; clients read it as 'not found'.
            return _ok(atom.entry(existing.name, _entity_description(existing)))
        if request.method == "DELETE":
            self._namespace.delete(name)
            self._dropped(name)
            return _answer(200)
        if request.method != "PUT":
            raise argument_error(f"There is no {request.method} here.")
        is_update = request.headers.get("if-match") == "*"
        if existing is not None and not is_update:
            raise entity_exists(name)
        if existing is None and is_update:
            raise entity_not_found(name)
        is_queue = b"QueueDescription" in request.body
        given = atom.parse_description(request.body, "QueueDescription" if is_queue else "TopicDescription")
        reader = _reader(given)
        made: QueueEntity | Topic
        if is_queue:
            made = self._put_queue(name, reader.queue(has_duplicate_detection=True), existing)
        else:
            made = self._put_topic(name, reader.topic(), existing)
        return _ok(atom.entry(name, _entity_description(made)), 200 if is_update else 201)

    def _put_queue(self, name: str, settings: QueueSettings, existing: QueueEntity | Topic | None) -> QueueEntity:
        if existing is None:
            return self._namespace.create_queue(name, settings)
        if not isinstance(existing, QueueEntity):
            raise entity_exists(name)
        _change(existing.queue.settings, settings, ("requires_session", "duplicate_seconds"))
        return existing

    def _put_topic(self, name: str, settings: TopicSettings, existing: QueueEntity | Topic | None) -> Topic:
        if existing is None:
            return self._namespace.create_topic(name, settings)
        if not isinstance(existing, Topic):
            raise entity_exists(name)
        settings.subscriptions = existing.settings.subscriptions
        _change(existing.settings, settings, ("duplicate_seconds",))
        return existing

    def _list_entities(self, kind: str, path: str, query: Mapping[str, str]) -> Response:
        wanted = {"queues": QueueEntity, "topics": Topic}.get(kind)
        if wanted is None:
            raise entity_not_found(path)
        found = [entity for entity in self._namespace.entities.values() if isinstance(entity, wanted)]
        return self._page(path, query, [(entity.name, _entity_description(entity)) for entity in found])

    def _namespace_info(self) -> Response:
        values = {"Alias": "", "MessagingSKU": "Standard", "Name": "lucius", "NamespaceType": "Messaging"}
        return _ok(atom.entry("lucius", atom.description("NamespaceInfo", values)))

    # --- Subscriptions and rules -------------------------------------------------------------------------------------

    def _subscription(self, topic: str, name: str, request: Request) -> Response:
        if request.method == "GET":
            return _ok(atom.entry(name, _subscription_description(self._namespace.subscription(topic, name))))
        if request.method == "DELETE":
            self._namespace.delete_subscription(topic, name)
            self._dropped(f"{topic}/subscriptions/{name}")
            return _answer(200)
        if request.method != "PUT":
            raise argument_error(f"There is no {request.method} here.")
        given = atom.parse_description(request.body, "SubscriptionDescription")
        settings = _reader(given).queue(has_duplicate_detection=False)
        if request.headers.get("if-match") == "*":
            existing = self._namespace.subscription(topic, name)
            _change(existing.queue.settings, settings, ("requires_session",))
            return _ok(atom.entry(name, _subscription_description(existing)))
        made = self._namespace.create_subscription(topic, name, SubscriptionSettings(settings, _default_rules(given)))
        return _ok(atom.entry(name, _subscription_description(made)), 201)

    def _rules(
        self, topic: str, name: str, rule_name: str | None, request: Request, query: Mapping[str, str]
    ) -> Response:
        rules = self._namespace.subscription(topic, name).rules
        path = f"{topic}/subscriptions/{name}/rules"
        if rule_name is None:
            return self._page(path, query, [(rule.name, atom.rule_description(rule)) for rule in rules.values()])
        existing = next((rule for rule in rules.values() if rule.name.lower() == rule_name.lower()), None)
        if request.method == "PUT":
            is_update = request.headers.get("if-match") == "*"
            if existing is not None and not is_update:
                raise entity_exists(f"{path}/{rule_name}")
            rule = atom.parse_rule(rule_name, atom.parse_description(request.body, "RuleDescription"))
            rules[existing.name if existing else rule_name] = rule
            return _ok(atom.entry(rule_name, atom.rule_description(rule)), 200 if is_update else 201)
        if existing is None:
            raise entity_not_found(f"{path}/{rule_name}")
        if request.method == "DELETE":
            del rules[existing.name]
            return _answer(200)
        return _ok(atom.entry(existing.name, atom.rule_description(existing)))

    # --- Pages -------------------------------------------------------------------------------------------------------

    def _page(self, path: str, query: Mapping[str, str], found: list[tuple[str, Element]]) -> Response:
        skip, top = int(query.get("$skip", "0")), min(int(query.get("$top", PAGE_MAX)), PAGE_MAX)
        if skip < 0 or top < 1:
            raise argument_error("$skip must be 0 or more, and $top 1 or more.")
        shown = [atom.entry(title, description) for title, description in found[skip : skip + top]]
        rest = {**query, "$skip": str(skip + top), "$top": str(top)}
        following = f"https://lucius/{path.strip('/')}?{urlencode(rest)}" if skip + top < len(found) else None
        return _ok(atom.feed(path, shown, following))


def _answer(status: int, body: bytes = b"") -> Response:
    return Response(status, body, {"Content-Type": CONTENT_TYPE})


def _ok(element: Element, status: int = 200) -> Response:
    return _answer(status, atom.text_of(element))


def _reader(given: Element) -> PropertyReader:
    def fault(name: str, text: str) -> None:
        raise argument_error(f"{name}: {text}")

    values = {name: value for name, value in atom.simple_values(given).items() if name not in READ_ONLY}
    return PropertyReader(values, fault)


def _default_rules(given: Element) -> list[Rule]:
    described = given.find(f"{{{atom.SERVICE_BUS}}}DefaultRuleDescription")
    if described is None:
        return [Rule.default()]
    name = described.findtext(f"{{{atom.SERVICE_BUS}}}Name")
    return [atom.parse_rule(name or Rule.default().name, described)]


def _change(existing: Any, wanted: Any, fixed: tuple[str, ...]) -> None:
    """Takes over what may change after creation."""
    before = copy.copy(existing)
    for name in fixed:
        if getattr(before, name) != getattr(wanted, name):
            raise argument_error(f"{name.replace('_', ' ')} cannot be changed: delete the entity and create it anew.")
    for one in fields(wanted):
        setattr(existing, one.name, getattr(wanted, one.name))


def _entity_description(entity: QueueEntity | Topic) -> Element:
    if isinstance(entity, QueueEntity):
        queue = entity.queue
        values = _queue_values(queue.settings) | _duplicate_values(queue.settings.duplicate_seconds)
        values |= {"MaxSizeInMegabytes": queue.settings.size_bytes_max // MEGABYTE, "SizeInBytes": queue.size_bytes}
        return atom.description("QueueDescription", values | {"MessageCount": len(queue)}, _counts(queue))
    settings = entity.settings
    values = {"DefaultMessageTimeToLive": duration_of(settings.ttl_seconds)}
    values |= _duplicate_values(settings.duplicate_seconds)
    values |= {
        "MaxSizeInMegabytes": settings.size_bytes_max // MEGABYTE,
        "SizeInBytes": sum(queue.size_bytes for queue in entity.queues()),
        "Status": "Active",
        "SubscriptionCount": len(entity.subscriptions),
    }
    return atom.description("TopicDescription", values)


def _subscription_description(subscription: Subscription) -> Element:
    queue = subscription.queue
    values = _queue_values(queue.settings) | {"MessageCount": len(queue)}
    return atom.description("SubscriptionDescription", values, _counts(queue))


def _queue_values(settings: QueueSettings) -> dict[str, Any]:
    return {
        "LockDuration": duration_of(settings.lock_seconds),
        "RequiresSession": settings.requires_session,
        "DefaultMessageTimeToLive": duration_of(settings.ttl_seconds),
        "DeadLetteringOnMessageExpiration": settings.dead_letters_expired,
        "MaxDeliveryCount": settings.max_delivery_count,
        "Status": "Active",
    }


def _duplicate_values(duplicate_seconds: float | None) -> dict[str, Any]:
    window = 600.0 if duplicate_seconds is None else duplicate_seconds
    return {
        "RequiresDuplicateDetection": duplicate_seconds is not None,
        "DuplicateDetectionHistoryTimeWindow": duration_of(window),
    }


def _counts(queue: Any) -> dict[str, int]:
    counts = queue.counts()
    return {
        "ActiveMessageCount": counts["active"],
        "DeadLetterMessageCount": len(queue.dead_letters) if queue.dead_letters is not None else 0,
        "ScheduledMessageCount": counts["scheduled"],
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }
