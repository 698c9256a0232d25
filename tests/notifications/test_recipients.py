"""Recipients: what is wrong with one, what a template becomes, what counts as one cause."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lucius.domain.notifications import (
    RUNBOOK_CAUSES,
    TENANT_CAUSES,
    Cause,
    Facts,
    Notice,
    Recipient,
    fill,
    notices_of,
    recipient_faults,
)
from lucius.notifications import rendering

GOOD: dict[str, Any] = {"name": "ops", "kind": "webhook", "url": "https://ops.example/hook"}


def faults(reference: str = "", **changed: Any) -> list[str]:
    given = {name: value for name, value in (GOOD | changed).items() if value is not None}
    return [place for place, _ in recipient_faults(Recipient(**given), RUNBOOK_CAUSES, reference)]


def test_a_good_recipient_has_no_faults() -> None:
    assert faults() == []
    assert faults(url=None, url_env="LUCIUS_NOTIFY_OPS", secret_env="LUCIUS_NOTIFY_SECRET") == []
    assert faults(kind="email", url=None, to=("a.b+c@ops.example",)) == []
    assert faults(kind="json", template={"a": ["{{title}}", {"b": "{{ count }}"}]}) == []
    assert faults(url="keyvault://vault/ops", reference="keyvault://") == []


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"name": "a b"}, "/name"),
        ({"kind": "fax"}, "/kind"),
        ({"causes": (Cause.JOB_FAILED,)}, "/causes/0"),
        ({"interval_seconds": 1}, "/interval"),
        ({"url_env": "LUCIUS_NOTIFY_OPS"}, "/url"),
        ({"url": None}, "/url"),
        ({"url": "file:///etc/passwd"}, "/url"),
        ({"url": "https://user:secret@ops.example"}, "/url"),
        ({"url": "keyvault://vault/ops"}, "/url"),
        ({"url": None, "url_env": "PATH"}, "/url_env"),
        ({"secret_env": "LUCIUS_API_KEY"}, "/secret_env"),
        ({"secret": "whsec_abc"}, "/secret"),
        ({"to": ("a@b.example",)}, "/to"),
        ({"template": {}}, "/template"),
        ({"kind": "email", "url": None}, "/to"),
        ({"kind": "email", "url": None, "to": ("a@b.example\nBcc: c@d.example",)}, "/to/0"),
        ({"kind": "json", "template": {"x": "{{nobody}}"}}, "/template/x"),
        ({"kind": "json", "template": "x" * 20_000}, "/template"),
    ],
)
def test_each_fault_is_found_at_its_place(changed: dict[str, Any], place: str) -> None:
    assert place in faults(**changed)


def test_a_template_that_is_too_deep_is_refused() -> None:
    template: Any = "x"
    for _ in range(40):
        template = [template]
    assert any(place.startswith("/template") for place in faults(kind="json", template=template))


def test_values_are_escaped_and_never_read_as_templates() -> None:
    hostile = '"}, {{title}} \\ \n</script>'
    filled = fill({"text": "Why: {{reason}}", "n": "{{count}}", "k": 1}, {"reason": hostile, "count": 3, "title": "T"})
    assert filled == {"text": f"Why: {hostile}", "n": 3, "k": 1}
    assert msgspec.json.decode(msgspec.json.encode(filled)) == filled


def test_every_cause_has_a_title_and_text() -> None:
    for cause in Cause:
        facts = Facts(cause=cause, at=0, runbook=None if cause in TENANT_CAUSES else "move", batch_id=7, phase="p",
                      tenant_id="acme", job_id="j", status="failed", reason="why\nnot", count=3)  # fmt: skip
        assert rendering.title(facts)
        assert "\n" not in rendering.title(facts)
        assert "why" in rendering.text(facts)


def test_recipients_are_told_only_what_they_ask_for() -> None:
    some = Recipient(name="some", kind="webhook", causes=(Cause.BATCH_HELD,))
    every = Recipient(name="every", kind="webhook")
    held, ended = (Facts(cause=cause, at=0, runbook="r", batch_id=1) for cause in (Cause.BATCH_HELD, Cause.BATCH_ENDED))
    assert [one.recipient.name for one in notices_of(held, (some, every))] == ["some", "every"]
    assert [one.recipient.name for one in notices_of(ended, (some, every))] == ["every"]


def test_keys_tell_owners_recipients_causes_batches_and_subjects_apart() -> None:
    one = Recipient(name="a", kind="webhook")
    held = Cause.BATCH_HELD
    notices = [
        Notice(Facts(cause=held, at=1, runbook="r", batch_id=1), one),
        Notice(Facts(cause=held, at=1, runbook="s", batch_id=1), one),
        Notice(Facts(cause=held, at=1, tenant_id="r", batch_id=1), one),
        Notice(Facts(cause=held, at=1, runbook="r", batch_id=2), one),
        Notice(Facts(cause=held, at=1, runbook="r", batch_id=1, about="x"), one),
        Notice(Facts(cause=Cause.BATCH_ENDED, at=1, runbook="r", batch_id=1), one),
        Notice(Facts(cause=held, at=1, runbook="r", batch_id=1), Recipient(name="b", kind="webhook")),
    ]
    assert len({notice.key for notice in notices}) == len(notices)
    again = Notice(Facts(cause=held, at=9, runbook="r", batch_id=1, reason="other", count=4), one)
    assert again.key == notices[0].key
