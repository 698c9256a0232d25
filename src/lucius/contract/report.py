"""The verdicts as text lines, as JSON, and as JUnit XML for a build server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from lucius.contract.case import Level, Status, Verdict

COLOURS = {Status.PASS: "32", Status.FAIL: "1;31", Status.ADVICE: "33", Status.NOT_RUN: "36"}
ID_WIDTH = 26
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain and a terminal should not get."""


def printable(text: str) -> str:
    return _UNPRINTABLE.sub("�", text)


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    return {status.value: sum(1 for one in verdicts if one.status is status) for status in Status}


def has_passed(verdicts: Sequence[Verdict], allow_not_run: bool) -> bool:
    """Advice does not fail a run. A case that was not run proves nothing, so it counts as failed unless allowed."""
    unwanted = {Status.FAIL} if allow_not_run else {Status.FAIL, Status.NOT_RUN}
    return not any(one.status in unwanted for one in verdicts)


def lines(verdict: Verdict, colour: bool = False) -> list[str]:
    """One line, and for anything but a pass the details needed to understand it."""
    status = f"{verdict.status.value:<8}"
    if colour:
        status = f"\033[{COLOURS[verdict.status]}m{status}\033[0m"
    found = [f"{status} {verdict.case.id:<{ID_WIDTH}} {verdict.seconds:5.1f} s"]
    found += [_indented("reason", verdict.reason)] if verdict.reason else []
    if verdict.expected:
        found += _failure_lines(verdict)
    return found + [_indented("note", one) for one in verdict.notes]


def _failure_lines(verdict: Verdict) -> list[str]:
    found = [
        _indented("checks", verdict.case.checks.replace("`", "")),
        _indented("expected", verdict.expected),
        _indented("happened", verdict.happened),
    ]
    found += [_indented("exchange" if not place else "", line) for place, line in enumerate(verdict.exchange)]
    found += [_indented("output" if not place else "", line) for place, line in enumerate(verdict.service_said)]
    return [*found, _indented("why", verdict.case.why), _indented("do", verdict.case.remedy)]


def _indented(name: str, text: str) -> str:
    return f"         {name:<9} {printable(text)}"


def summary(verdicts: Sequence[Verdict], seconds: float) -> str:
    found = counts(verdicts)
    parts = [f"{found['PASS']} passed", f"{found['FAIL']} failed"]
    parts += [f"{found['ADVICE']} with advice"] if found["ADVICE"] else []
    parts += [f"{found['NOT RUN']} not run"] if found["NOT RUN"] else []
    count = "1 case" if len(verdicts) == 1 else f"{len(verdicts)} cases"
    return f"{count} in {seconds:.0f} s: {', '.join(parts)}"


def as_json(service: str, verdicts: Sequence[Verdict], passed: bool) -> dict[str, Any]:
    return {
        "service": service,
        "passed": passed,
        "counts": counts(verdicts),
        "cases": [
            {
                "id": one.case.id,
                "level": one.case.level.value,
                "status": one.status.value,
                "seconds": round(one.seconds, 3),
                "checks": one.case.checks,
                "reason": one.reason,
                "expected": one.expected,
                "happened": one.happened,
                "exchange": one.exchange,
                "output": one.service_said,
                "why": one.case.why if one.expected else "",
                "remedy": one.case.remedy if one.expected else "",
                "notes": one.notes,
            }
            for one in verdicts
        ],
    }


def as_junit(service: str, verdicts: Sequence[Verdict], allow_not_run: bool) -> bytes:
    """JUnit XML. A case that was not run is an error, or skipped if that is allowed."""
    found = counts(verdicts)
    not_run = found["NOT RUN"]
    suite = ElementTree.Element(
        "testsuite",
        name=f"lucius contract {service}",
        tests=str(len(verdicts)),
        failures=str(found["FAIL"]),
        errors=str(0 if allow_not_run else not_run),
        skipped=str(not_run if allow_not_run else 0),
        time=f"{sum(one.seconds for one in verdicts):.3f}",
    )
    for one in verdicts:
        _add_case(suite, service, one, allow_not_run)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _add_case(suite: ElementTree.Element, service: str, verdict: Verdict, allow_not_run: bool) -> None:
    place = f"lucius.contract.{printable(service)}.{verdict.case.theme}"
    element = ElementTree.SubElement(
        suite, "testcase", classname=place, name=verdict.case.id, time=f"{verdict.seconds:.3f}"
    )
    text = "\n".join(lines(verdict))
    if verdict.status is Status.FAIL:
        message_ = printable(f"expected {verdict.expected}; {verdict.happened}")
        ElementTree.SubElement(element, "failure", type=Level.MUST.value, message=message_).text = text
    elif verdict.status is Status.NOT_RUN:
        tag = "skipped" if allow_not_run else "error"
        ElementTree.SubElement(element, tag, message=printable(verdict.reason)).text = text
    elif verdict.status is Status.ADVICE or verdict.notes:
        ElementTree.SubElement(element, "system-out").text = text
