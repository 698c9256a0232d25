"""What people are told about batches and jobs: for which causes, by which means, and in which words.

A recipient is part of a runbook's YAML or of a tenant's file. It holds names of secrets, never secrets: an address or a
signing secret is in an environment variable, or in Key Vault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from lucius.domain.time import Instant

INTERVAL_SECONDS = 900
INTERVAL_SECONDS_MIN = 60
WARN_BEFORE_SECONDS = 3_600
RECIPIENTS_MAX = 20
ADDRESSES_MAX = 20
TEMPLATE_BYTES_MAX = 16_384
TEMPLATE_DEPTH_MAX = 16
ENVIRONMENT_PREFIX = "LUCIUS_NOTIFY_"


class Cause(StrEnum):
    BATCH_HELD = "batch_held"
    MEMBER_HELD = "member_held"
    STEP_FAILED = "step_failed"
    SOURCE_FAILED = "source_failed"
    SOURCE_HELD = "source_held"
    PHASE_ENDED = "phase_ended"
    BATCH_ENDED = "batch_ended"
    APPROVAL_NEEDED = "approval_needed"
    APPROVAL_REFUSED = "approval_refused"
    DEADLINE_NEAR = "deadline_near"
    JOB_FAILED = "job_failed"
    TEST = "test"


RUNBOOK_CAUSES = frozenset(Cause) - {Cause.JOB_FAILED, Cause.TEST}
"""What recipients of a runbook can ask for."""
TENANT_CAUSES = frozenset({Cause.JOB_FAILED, Cause.DEADLINE_NEAR})
"""What recipients of a tenant can ask for."""

WEBHOOK, JSON, EMAIL = "webhook", "json", "email"
KINDS = (WEBHOOK, JSON, EMAIL)


class Recipient(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    kind: str
    """`webhook`: the event as JSON, signed. `json`: a body made from `template`. `email`: by SMTP."""
    causes: tuple[Cause, ...] = ()
    """Empty: every cause."""
    interval_seconds: int = INTERVAL_SECONDS
    """At most one message for one cause in this time."""
    url: str | None = None
    url_env: str | None = None
    secret: str | None = None
    secret_env: str | None = None
    to: tuple[str, ...] = ()
    template: Any = None

    @property
    def variables(self) -> dict[str, str]:
        """Which field names which environment variable."""
        named = {"url_env": self.url_env, "secret_env": self.secret_env}
        return {field: variable for field, variable in named.items() if variable is not None}

    def wants(self, cause: Cause) -> bool:
        return cause is Cause.TEST or not self.causes or cause in self.causes


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened, as it is kept and sent. `about` tells two things with the same cause apart."""

    cause: Cause
    at: Instant
    about: str = ""
    runbook: str | None = None
    batch_id: int | None = None
    phase: str | None = None
    member: str | None = None
    tenant_id: str | None = None
    job_id: str | None = None
    request_type: str | None = None
    status: str | None = None
    reason: str | None = None
    due_at: Instant | None = None
    """The deadline that is near."""
    count: int = 1
    """How often it happened since the previous message for this cause."""

    @property
    def owner(self) -> str:
        """Whose recipients are told: owners take turns in sending."""
        return f"runbook:{self.runbook}" if self.runbook is not None else f"tenant:{self.tenant_id}"


class Notice(Struct, frozen=True):
    """Something that one recipient is to be told."""

    facts: Facts
    recipient: Recipient

    @property
    def key(self) -> str:
        """The same for what counts as one cause: at most one message in the recipient's interval."""
        facts = self.facts
        return msgspec.json.encode(
            [facts.owner, self.recipient.name, facts.cause, facts.batch_id, facts.about]
        ).decode()


def notices_of(facts: Facts, recipients: Sequence[Recipient]) -> list[Notice]:
    return [Notice(facts, one) for one in recipients if one.wants(facts.cause)]


# --- Checking recipients ---------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(rf"{ENVIRONMENT_PREFIX}[A-Z0-9_]{{1,100}}")
_ADDRESS = re.compile(r"[A-Za-z0-9._%+'-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")
_URL = re.compile(r"https?://[^\s/@]+(/\S*)?", re.IGNORECASE)
_BRACES = re.compile(r"\{\{([^{}]*)\}\}")

Faults = Iterator[tuple[str, str]]
"""Pairs of a JSON pointer and a sentence."""


def recipient_faults(one: Recipient, causes: frozenset[Cause], reference: str = "") -> Faults:
    """What is wrong with a recipient, by the pointer within it. `reference`: what an address or a secret may begin with
    because it refers to Key Vault; empty where it may not."""
    if not _NAME.fullmatch(one.name):
        yield "/name", "a recipient's name has 1 to 64 letters, digits and any of _ . -"
    if one.kind not in KINDS:
        yield "/kind", f"must be one of {', '.join(KINDS)}"
        return
    for index, cause in enumerate(one.causes):
        if cause not in causes:
            yield f"/causes/{index}", f"not told here; choose from {', '.join(sorted(causes))}"
    if one.interval_seconds < INTERVAL_SECONDS_MIN:
        yield "/interval", f"at least {INTERVAL_SECONDS_MIN} s"
    if one.kind == EMAIL:
        yield from _email_faults(one)
    else:
        yield from _address_faults(one, reference)
    if one.kind == JSON:
        yield from _template_faults(one.template)
    elif one.template is not None:
        yield "/template", "only a recipient of kind json has a template"


def _email_faults(one: Recipient) -> Faults:
    if not 1 <= len(one.to) <= ADDRESSES_MAX:
        yield "/to", f"an e-mail recipient has 1 to {ADDRESSES_MAX} addresses"
    for index, address in enumerate(one.to):
        if not _ADDRESS.fullmatch(address):
            yield f"/to/{index}", "not an e-mail address"
    for name in ("url", "url_env", "secret", "secret_env"):
        if getattr(one, name) is not None:
            yield f"/{name}", "an e-mail recipient has addresses in `to` and nothing else"


def _address_faults(one: Recipient, reference: str) -> Faults:
    if one.to:
        yield "/to", "only a recipient of kind email has addresses"
    if (one.url is None) == (one.url_env is None):
        yield "/url", "give either url or url_env"
    if one.url is not None and not _URL.fullmatch(one.url) and not (reference and one.url.startswith(reference)):
        yield (
            "/url",
            "must be an http or https address without credentials; an address that is a secret goes in url_env",
        )
    for name in ("url_env", "secret_env"):
        value = getattr(one, name)
        if value is not None and not _VARIABLE.fullmatch(value):
            yield f"/{name}", f"the name of an environment variable: {ENVIRONMENT_PREFIX} followed by A-Z 0-9 _"
    if one.secret is not None and not (reference and one.secret.startswith(reference)):
        yield "/secret", "never put a secret here: name the environment variable with it in secret_env"
    if one.secret is not None and one.secret_env is not None:
        yield "/secret", "the secret is given twice: leave out secret or secret_env"


def _template_faults(template: Any) -> Faults:
    if template is None:
        return
    if len(msgspec.json.encode(template)) > TEMPLATE_BYTES_MAX:
        yield "/template", f"a template has at most {TEMPLATE_BYTES_MAX} bytes"
        return
    for pointer, text in _texts(template, "/template", TEMPLATE_DEPTH_MAX):
        if text is None:
            yield pointer, f"a template is at most {TEMPLATE_DEPTH_MAX} levels deep"
            continue
        for name in _BRACES.findall(text):
            if name.strip() not in FIELDS:
                yield pointer, f"{{{{{name}}}}} is not a field of a notification; these are: {', '.join(FIELDS)}"


def _texts(value: Any, pointer: str, depth: int) -> Iterator[tuple[str, str | None]]:
    if depth == 0:
        yield pointer, None
    elif isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _texts(member, f"{pointer}/{key}", depth - 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _texts(item, f"{pointer}/{index}", depth - 1)


def duplicate_names(recipients: Sequence[Recipient]) -> Iterator[int]:
    """The places of recipients whose name another one before them has."""
    names = [one.name for one in recipients]
    return (index for index, name in enumerate(names) if name in names[:index])


# --- Templates -------------------------------------------------------------------------------------------------------

FIELDS = (
    "id", "cause", "title", "text", "link", "at", "count", "runbook", "batch_id", "phase", "member", "tenant_id",
    "job_id", "request_type", "status", "reason", "due_at",
)  # fmt: skip
TEMPLATE_DEFAULT = {"text": "{{title}}\n{{text}}\n{{link}}"}
"""Fits the incoming webhooks of Slack, and those of Teams that take plain text."""


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with its fields filled in. A text that is one field alone becomes its value, so that numbers stay
    numbers; within a longer text it becomes text. Values are never read as templates, and whoever encodes the result as
    JSON escapes them."""
    if isinstance(template, str):
        alone = _BRACES.fullmatch(template)
        if alone:
            return values.get(alone[1].strip())
        return _BRACES.sub(lambda found: _text(values.get(found[1].strip())), template)
    if isinstance(template, dict):
        return {key: fill(member, values) for key, member in template.items()}
    if isinstance(template, (list, tuple)):
        return [fill(item, values) for item in template]
    return template


def _text(value: Any) -> str:
    return "" if value is None else str(value)
