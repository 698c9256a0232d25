"""A tab of a real browser, with what every page of the console is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, Response

LOOKS: dict[str, tuple[Literal["light", "dark"], int]] = {
    "light": ("light", 1280), "dark": ("dark", 1280), "narrow": ("light", 380),
}  # fmt: skip
"""The colours and the width of the window."""
HEIGHT = 900
AXE = "async (options) => (await axe.run(document, {resultTypes: ['violations'], ...options})).violations"
OF_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The rules of axe that a page can break in the dark alone."""
HAS_AXE = "() => 'axe' in window"
OPEN_ALL = "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
SEND = """([address, fields]) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = address;
  const token = document.querySelector("input[name=csrf]");
  for (const [name, value] of Object.entries({csrf: token ? token.value : "", ...fields})) {
    const field = document.createElement("textarea");
    field.name = name;
    field.value = value;
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}"""
"""A form as one of the page's, with its token."""


class Tab:
    def __init__(self, page: Page, url: str, axe: Path) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        """What the browser said was wrong: blocked by the policy, errors of scripts, addresses outside."""
        self.expected: tuple[str, ...] = ("status of 4",)
        self.allowed: tuple[str, ...] = (url,)
        """What the addresses that it asks for begin with."""
        self.sent: set[str] = set()
        """The paths below the console that forms were sent to, and that did what they were asked for."""
        self._axe = axe
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._requested)
        page.on("response", self._answered)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(one in message.text for one in self.expected):
            self.complaints.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self.allowed):
            self.complaints.append(f"outside: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.request.method == "POST" and (response.ok or response.status == 303):
            self.sent.add(unquote(urlsplit(response.url).path.removeprefix(f"{urlsplit(self.url).path}/console")))

    def sign_in(self, key: str) -> None:
        self.go("/sign-in")
        self.page.fill("#key", key)
        self.page.click("main button")
        self.page.wait_for_selector("nav")

    def go(self, path: str = "/") -> int:
        """Open a page; returns its status."""
        answer = self.page.goto(f"{self.url}/console{path}")
        assert answer is not None
        return answer.status

    def send(self, path: str, fields: Mapping[str, str]) -> int:
        """Send a form from the page that is open; returns the status of the page that comes of it."""
        with self.page.expect_navigation() as navigation:
            self.page.evaluate(SEND, [f"{self.url}/console{path}", dict(fields)])
        return int(navigation.value.status)

    def until_live(self) -> None:
        self.page.wait_for_selector("#live[data-state=live]")

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def faults_by_look(self) -> list[str]:
        """What axe finds on this page with everything unfolded, and whether it scrolls sideways, in each look."""
        found = []
        self.page.evaluate(OPEN_ALL)
        for look, (colours, width) in LOOKS.items():
            self.page.emulate_media(color_scheme=colours)
            self.page.set_viewport_size({"width": width, "height": HEIGHT})
            options = OF_COLOURS if look == "dark" else {}
            found += [f"{look}: {violation}" for violation in self.violations(options)]
            sideways = self.page.evaluate(SIDEWAYS)
            if sideways > 0:
                found.append(f"{look}: it scrolls sideways by {sideways} px")
        return found

    def violations(self, options: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """What axe finds. Run through the debugger, so the policy of the page stays in force."""
        if not self.page.evaluate(HAS_AXE):
            self.page.evaluate(self._axe.read_text())
        return [
            {"id": one["id"], "nodes": [node["html"] for node in one["nodes"]][:3]}
            for one in self.page.evaluate(AXE, dict(options or {}))
        ]


OpenTab = Callable[..., Tab]
