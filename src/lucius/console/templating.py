"""Templates: every value is escaped, instants are `<time>`, and tokens are put in last.

What is rendered is shared between viewers, so a form contains a mark where its viewer's CSRF token belongs. The mark is
random in each process: no value of a job can contain it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lucius.console.site import Site
from lucius.domain.time import Instant, iso

HERE = Path(__file__).parent
STATIC = HERE / "static"
CSRF_MARK = secrets.token_hex(32)

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

CSRF_FIELD = Markup(f'<input type="hidden" name="csrf" value="{CSRF_MARK}">')  # noqa: S704 - a constant


def instant(value: Instant | str | None) -> Markup:
    """A time, in UTC until the script shows it in the reader's time zone."""
    if value is None:
        return Markup('<span class="none">–</span>')
    text = iso(value) if isinstance(value, int) else str(value)
    return Markup('<time datetime="{}">{}</time>').format(text, text[:19].replace("T", " ") + " UTC")


def sentence(text: str) -> Markup:
    """A sentence of the API for people: its times in the reader's zone, names without the marks of code."""
    return moments(text.replace("`", ""))


def moments(text: str) -> Markup:
    """A text with its times in the reader's zone."""
    parts: list[Markup] = []
    at = 0
    for found in _INSTANT.finditer(text):
        parts += [escape(text[at : found.start()]), instant(found[0])]
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])


def countdown(value: Instant | str | None, kind: str = "") -> Markup:
    """A time, with how long it is until then, which the script keeps up to date; `short`: only that."""
    if value is None:
        return Markup("")
    text, shown = (
        iso(value) if isinstance(value, int) else str(value),
        '<time datetime="{}" data-countdown="{}">{}</time>',
    )
    return Markup(shown).format(text, kind, text[:19].replace("T", " ") + " UTC")  # noqa: S704 - a constant


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def duration(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


@cache
def static_version(name: str) -> str:
    """Changes with the file, so that browsers may keep it for long."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def open_templates(site: Site) -> Environment:
    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip

    def static(name: str) -> str:
        return f"{site.base}/static/{name}?v={static_version(name)}"

    templates.globals.update(base=site.base, static=static, csrf=CSRF_FIELD)
    templates.filters.update(
        instant=instant, countdown=countdown, sentence=sentence, moments=moments, number=number, duration=duration
    )
    return templates


def with_csrf(html: str, token: str) -> str:
    return html.replace(CSRF_MARK, token)


Values = dict[str, Any]
