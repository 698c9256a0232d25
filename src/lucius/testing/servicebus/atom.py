"""The administration API's XML: Atom entries and feeds around Service Bus's descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from lucius.testing.servicebus.config import CORRELATION_NAMES
from lucius.testing.servicebus.durations import seconds_of
from lucius.testing.servicebus.filters import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TrueFilter

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
UPDATED = "2000-01-01T00:00:00Z"
"""The test server keeps no times of changes."""

ElementTree.register_namespace("i", INSTANCE)


class XmlError(ValueError):
    pass


# --- In --------------------------------------------------------------------------------------------------------------


def parse_description(body: bytes, kind: str) -> Element:
    """The `kind` (`TopicDescription` …) in an entry's content."""
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise XmlError("A document type is not allowed.")
    try:
        entry = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise XmlError(f"The body is not XML: {error}.") from error
    found = entry.find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}{kind}")
    if found is None:
        raise XmlError(f"The body is no Atom entry with a {kind}.")
    return found


def simple_values(description: Element) -> dict[str, str]:
    """The text of each element that has no elements of its own."""
    return {_local(child): (child.text or "").strip() for child in description if not len(child) and child.text}


def parse_rule(name: str, description: Element) -> Rule:
    given = description.find(f"{{{SERVICE_BUS}}}Filter")
    action = description.find(f"{{{SERVICE_BUS}}}Action/{{{SERVICE_BUS}}}SqlExpression")
    expression = (action.text or "").strip() if action is not None else ""
    return Rule(name, TrueFilter() if given is None else _parse_filter(given), expression or None)


def _parse_filter(given: Element) -> Filter:
    kind = given.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]
    values = simple_values(given)
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        if len(given.findall(f"{{{SERVICE_BUS}}}Parameters/*")):
            raise XmlError("Parameters of SQL filters are not supported by the test server.")
        return SqlFilter(values.get("SqlExpression", ""))
    if kind == "CorrelationFilter":
        named = {CORRELATION_NAMES[key]: value for key, value in values.items() if key in CORRELATION_NAMES}
        pairs = given.findall(f"{{{SERVICE_BUS}}}Properties/{{{SERVICE_BUS}}}KeyValueOfstringanyType")
        return CorrelationFilter(named, dict(_parse_pair(pair) for pair in pairs))
    raise XmlError(f"There is no filter of the type '{kind}'.")


def _parse_pair(pair: Element) -> tuple[str, Any]:
    key, value = pair.findtext(f"{{{SERVICE_BUS}}}Key"), pair.find(f"{{{SERVICE_BUS}}}Value")
    if key is None or value is None:
        raise XmlError("A property of a correlation filter needs a key and a value.")
    kind, text = value.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2], value.text or ""
    if kind in ("int", "long"):
        return key, int(text)
    if kind == "double":
        return key, float(text)
    if kind == "boolean":
        return key, text.strip().lower() == "true"
    if kind == "duration":
        return key, seconds_of(text)
    return key, text


# --- Out -------------------------------------------------------------------------------------------------------------


def entry(title: str, description: Element) -> Element:
    found = Element(f"{{{ATOM}}}entry")
    SubElement(found, f"{{{ATOM}}}id").text = title
    SubElement(found, f"{{{ATOM}}}title", {"type": "text"}).text = title
    SubElement(found, f"{{{ATOM}}}published").text = UPDATED
    SubElement(found, f"{{{ATOM}}}updated").text = UPDATED
    SubElement(found, f"{{{ATOM}}}content", {"type": "application/xml"}).append(description)
    return found


def feed(title: str, entries: Iterable[Element], next_address: str | None = None) -> Element:
    found = Element(f"{{{ATOM}}}feed")
    SubElement(found, f"{{{ATOM}}}title", {"type": "text"}).text = title
    SubElement(found, f"{{{ATOM}}}updated").text = UPDATED
    SubElement(found, f"{{{ATOM}}}link", {"rel": "self", "href": title})
    if next_address is not None:
        SubElement(found, f"{{{ATOM}}}link", {"rel": "next", "href": next_address})
    found.extend(entries)
    return found


def description(kind: str, values: Mapping[str, Any], counts: Mapping[str, int] | None = None) -> Element:
    found = Element(f"{{{SERVICE_BUS}}}{kind}")
    for name, value in values.items():
        SubElement(found, f"{{{SERVICE_BUS}}}{name}").text = _text(value)
    if counts is not None:
        details = SubElement(found, f"{{{SERVICE_BUS}}}CountDetails")
        for name, count in counts.items():
            SubElement(details, f"{{{COUNTS}}}{name}").text = str(count)
    return found


def rule_description(rule: Rule) -> Element:
    found = Element(f"{{{SERVICE_BUS}}}RuleDescription")
    given = SubElement(found, f"{{{SERVICE_BUS}}}Filter", {f"{{{INSTANCE}}}type": type(rule.filter).__name__})
    _describe_filter(given, rule.filter)
    kind = "SqlRuleAction" if rule.action else "EmptyRuleAction"
    action = SubElement(found, f"{{{SERVICE_BUS}}}Action", {f"{{{INSTANCE}}}type": kind})
    if rule.action:
        SubElement(action, f"{{{SERVICE_BUS}}}SqlExpression").text = rule.action
    SubElement(found, f"{{{SERVICE_BUS}}}Name").text = rule.name
    return found


def _describe_filter(given: Element, filter_: Filter) -> None:
    if isinstance(filter_, CorrelationFilter):
        names = {name: key for key, name in CORRELATION_NAMES.items() if key != "Subject"}
        for name, value in filter_.properties.items():
            SubElement(given, f"{{{SERVICE_BUS}}}{names[name]}").text = value
        pairs = SubElement(given, f"{{{SERVICE_BUS}}}Properties")
        for key, value in filter_.application_properties.items():
            pair = SubElement(pairs, f"{{{SERVICE_BUS}}}KeyValueOfstringanyType")
            SubElement(pair, f"{{{SERVICE_BUS}}}Key").text = key
            kind = {f"{{{INSTANCE}}}type": f"d6p1:{_schema_type(value)}", "xmlns:d6p1": SCHEMA}
            SubElement(pair, f"{{{SERVICE_BUS}}}Value", kind).text = _text(value)
        return
    expression = filter_.expression if isinstance(filter_, SqlFilter) else "1=1"
    SubElement(given, f"{{{SERVICE_BUS}}}SqlExpression").text = (
        "1=0" if isinstance(filter_, FalseFilter) else expression
    )
    SubElement(given, f"{{{SERVICE_BUS}}}CompatibilityLevel").text = "20"


def error(status: int, detail: str) -> Element:
    found = Element("Error")
    SubElement(found, "Code").text = str(status)
    SubElement(found, "Detail").text = detail
    return found


def text_of(element: Element) -> bytes:
    text: bytes = ElementTree.tostring(element, encoding="utf-8", xml_declaration=True)
    return text


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _schema_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int" if abs(value) < 2**31 else "long"
    return "double" if isinstance(value, float) else "string"


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]
