"""A tab of a real browser, with what every page of the console is held to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, Request

AXE = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


class Tab:
    def __init__(self, page: Page, url: str, axe: Path) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        """What the browser said was wrong: blocked by the policy, errors of scripts, addresses outside."""
        self.expected: tuple[str, ...] = ("status of 4",)
        self.allowed: tuple[str, ...] = (url,)
        """What the addresses that it asks for begin with."""
        self._axe = axe
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(one in message.text for one in self.expected):
            self.complaints.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self.allowed):
            self.complaints.append(f"outside: {request.url}")

    def sign_in(self, key: str) -> None:
        self.go("/sign-in")
        self.page.fill("#key", key)
        self.page.click("main button")
        self.page.wait_for_selector("nav")

    def go(self, path: str = "/") -> None:
        self.page.goto(f"{self.url}/console{path}")

    def until_live(self) -> None:
        self.page.wait_for_selector("#live[data-state=live]")

    def text(self, selector: str = "main") -> str:
        return self.page.inner_text(selector)

    def violations(self) -> list[dict[str, Any]]:
        """What axe finds. Run through the debugger, so the policy of the page stays in force."""
        self.page.evaluate(self._axe.read_text())
        return [
            {"id": one["id"], "nodes": [node["html"] for node in one["nodes"]][:3]} for one in self.page.evaluate(AXE)
        ]


OpenTab = Callable[..., Tab]
