"""One server for all tests of the console in a process, one browser for a module, a browser context for each test.

Playwright's blocking interface keeps an event loop running in this thread for as long as it is open. So it is closed
after each module, and a module that uses it has no `async` test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.console import chromium
from tests.console import console_addresses as addresses
from tests.console.console_browser import OpenTab, Tab
from tests.console.console_server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("console")
    source = folder / "members.csv"
    source.write_text("Upn,Day\n")
    moves = folder / "moves.csv"
    moves.write_text("Upn,Day\n")
    server = Server(
        folder,
        LUCIUS_SOURCE_MEMBERS=str(source),
        LUCIUS_SOURCE_MOVES=str(moves),
        LUCIUS_SOURCE_INTERVAL="0.3",
        LUCIUS_SOURCE_STILL_SECONDS="0",
        LUCIUS_CONSOLE_TRACE_URL="https://traces.example/trace/{trace_id}",
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chromium_folder(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return chromium.install(Path(pytestconfig.cache.mkdir("npm")))


@pytest.fixture(scope="module")
def browser(chromium_folder: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        environment = dict(os.environ) | {"LD_LIBRARY_PATH": str(chromium_folder / "lib")}
        started = playwright.chromium.launch(
            executable_path=str(chromium_folder / "chromium"), args=list(chromium.FLAGS), env=environment
        )
        yield started
        started.close()


@pytest.fixture
def open_tab(
    browser: Browser, server: Server, chromium_folder: Path, request: pytest.FixtureRequest
) -> Iterator[OpenTab]:
    """Open a tab in a browser context of its own; with `key`, signed in. What the browser complains about fails the
    test when it ends, and so does an act that the test is marked with and has not done."""
    tabs: list[Tab] = []

    def open_(key: str | None = None, url: str | None = None, **options: Any) -> Tab:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(10_000)
        tab = Tab(context.new_page(), url or server.url, chromium_folder / "axe.min.js")
        tabs.append(tab)
        if key is not None:
            tab.sign_in(key)
        return tab

    yield open_
    for tab in tabs:
        tab.page.context.close()
    complaints = [complaint for tab in tabs for complaint in tab.complaints]
    assert complaints == []
    mark = request.node.get_closest_marker("acts")
    if mark is not None:
        done = {addresses.act_at(path) for tab in tabs for path in tab.sent}
        assert set(mark.args) <= done, "it has not done every act that it is marked with"
