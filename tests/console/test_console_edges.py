"""What surrounds the console: a path prefix, keys that are removed, a server that goes away."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from tests.console import console_addresses as addresses
from tests.console.batch_scenario import Batch
from tests.console.console_browser import OpenTab
from tests.console.console_server import ACME, ADMIN, READER, Server
from tests.console.prefix_proxy import PREFIX, prefix_proxy

ADDRESS = re.compile(r'(?:href|src|action|hx-get|hx-sse:connect|data-[a-z]+)="(/[^"]*)"')


def check_every_address(server: Server, address: str, job_id: str) -> None:
    """Whatever any page leads to is below the prefix."""
    batch = Batch(server, "prefixed", ["somebody"], {"first": ["step"]})
    values = addresses.make_values(server, job_id, batch, "nobody")
    with httpx.Client() as client:
        client.post(f"{address}/console/sign-in", data={"key": ADMIN})
        for path in addresses.pages(values).values():
            answer = client.get(f"{address}/console{path}")
            assert answer.status_code == 200, path
            found = ADDRESS.findall(answer.text)
            assert len(found) > 10, path
            assert [one for one in found if not one.startswith(f"{PREFIX}/console/")] == [], path


def test_console_behind_a_prefix_ends_with_its_key_and_shows_that_its_stream_is_lost(
    tmp_path: Path, open_tab: OpenTab
) -> None:
    with prefix_proxy() as proxy:
        address = f"http://127.0.0.1:{proxy.server_port}{PREFIX}"
        server = Server(tmp_path, LUCIUS_CONSOLE_URL=address)
        try:
            proxy.target = server.url
            assert server.link.startswith(f"{address}/console/sign-in/")
            tab = open_tab(READER, url=address)
            tab.until_live()
            job_id = server.submit()
            tab.page.click("nav >> text=Jobs")
            tab.page.click(f"a:has-text('{job_id}')")
            tab.page.wait_for_selector("svg.timeline")
            assert tab.page.url == f"{address}/console/jobs/{job_id}"
            (cookie,) = tab.page.context.cookies()
            assert cookie["path"] == f"{PREFIX}/console"
            check_every_address(server, address, job_id)
            other = open_tab(ACME, url=address)
            other.until_live()
            keys = (tmp_path / "keys.yaml").read_text().splitlines(keepends=True)
            (tmp_path / "keys.yaml").write_text("".join(line for line in keys if "name: acme" not in line))
            other.page.wait_for_selector("#key")  # Its session has ended with its key.
            tab.until_live()
        finally:
            server.stop()
        tab.expected = ("status of", "net::ERR", "Failed to fetch", "network error")
        tab.page.wait_for_selector("#lost:visible")
        assert "may be out of date" in tab.text("#lost")
        tab.page.context.close()
