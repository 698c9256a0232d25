"""What many consoles share, and what each may have: pieces are rendered once, streams are counted. No browser."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.console.batch_scenario import Batch, runbook
from tests.console.console_server import ACME, ADMIN, ONLY, OPERATOR, READER, Server, keys_file
from tests.console.test_console_pages import signed_in

from lucius.api.app import create_front
from lucius.app_context import AppContext
from lucius.bootstrap import open_app
from lucius.console import console_routes, stream
from lucius.console.frame import Frame
from lucius.console.pieces import Pieces
from lucius.console.stream import PER_SESSION_MAX
from lucius.ports.ledger import LedgerUnavailable
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock
from lucius.usecases.changes import DEBOUNCE_SECONDS, TOLD_PER_SECOND_MAX, Changes
from lucius.usecases.lane_history import MINUTES
from lucius.usecases.waits import WaitKind

VIEWERS = 20
PIECE_TEMPLATES = {"now": "overview_now.html", "counts": "overview_counts.html", "failures": "overview_failures.html"}


@asynccontextmanager
async def console(folder: Path, **settings: Any) -> AsyncIterator[tuple[AppContext, httpx.ASGITransport]]:
    keys = folder / "keys.yaml"
    own = "".join(
        f"- {{name: viewer-{number}, sha256: {hashlib.sha256(viewer_key(number).encode()).hexdigest()},"
        ' tenants: "*", roles: [read]}\n'
        for number in range(VIEWERS)
    )
    keys.write_text(keys_file() + own)
    known = Settings(
        ledger="memory", bus="memory", api_key=ADMIN, api_keys_file=str(keys), data=str(folder),
        callback_keys=("k1:0123456789abcdef0123456789abcdef",), **settings,
    )  # fmt: skip
    async with open_app(known) as context:
        yield context, httpx.ASGITransport(app=create_front(context, console_routes(context)))


def viewer_key(number: int) -> str:
    return f"lk_console_viewer_{number:04}_0123456789"


async def visitor(transport: httpx.ASGITransport, key: str) -> httpx.AsyncClient:
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    answer = await client.post("/console/sign-in", data={"key": key})
    assert answer.status_code == 303
    return client


async def test_piece_is_rendered_once_per_change_and_scope_for_twenty_viewers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: Counter[str] = Counter()
    render = Frame.render

    def counted(self: Frame, template: str, values: dict[str, Any]) -> str:
        rendered[template] += 1
        return render(self, template, values)

    monkeypatch.setattr(Frame, "render", counted)
    async with console(tmp_path) as (context, transport):
        viewers = [await visitor(transport, viewer_key(number)) for number in range(VIEWERS)]
        other = await visitor(transport, ACME)

        async def look() -> dict[str, int]:
            rendered.clear()
            asked = [
                viewer.get("/console/", params={"piece": piece})
                for viewer in [*viewers, other]
                for piece in PIECE_TEMPLATES
            ]
            answers = await asyncio.gather(*asked)
            assert {answer.status_code for answer in answers} == {200}
            return {template: rendered[template] for template in PIECE_TEMPLATES.values()}

        two_scopes = dict.fromkeys(PIECE_TEMPLATES.values(), 2)
        assert await look() == two_scopes, "once for those who see all, once for those who see acme"
        assert await look() == dict.fromkeys(PIECE_TEMPLATES.values(), 0), "nothing has changed"
        context.changes.note("jobs", {"acme"})
        assert await look() == two_scopes
        for client in [*viewers, other]:
            await client.aclose()


async def test_several_pieces_come_in_one_answer_and_one_that_fails_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(tmp_path) as (context, transport):
        viewer = await visitor(transport, ACME)
        answer = await viewer.get("/console/?piece=now&piece=failures&piece=now")
        assert re.findall(r'<hx-partial hx-target="#piece-(\w+)"', answer.text) == ["now", "failures"]
        for address in ("/console/?piece=now&piece=nothing", "/console/?piece=now&piece=parts"):
            assert (await viewer.get(address)).status_code == 404, "a tenant sees no parts"

        async def away(tenants: object) -> None:
            raise LedgerUnavailable("the disk is full")

        monkeypatch.setattr(context.figures, "waiting", away)
        context.changes.note("jobs")
        now, failures = (await viewer.get("/console/?piece=now&piece=failures")).text.split("</hx-partial>")[:2]
        assert "could not be read: the disk is full" in now
        assert "could not be read" not in failures
        await viewer.aclose()


def test_buttons_are_those_of_the_reader_whoever_read_the_piece_before(server: Server) -> None:
    """An approval by administrators is neither offered to operators nor kept from administrators."""
    text = runbook("by admins", {"go": ["switch"]}).replace(
        "    steps:", "    approval: {count: 1, role: admin}\n    steps:"
    )
    server.client.post("/v1/runbooks", json={"yaml": text}).raise_for_status()
    for order in ((OPERATOR, ADMIN), (ADMIN, OPERATOR), (ONLY["operate"], ONLY["admin"]), (READER, ONLY["admin"])):
        made = Batch.of_published(server, "by admins", ["ann"])
        for key in order:
            with signed_in(server, key) as client:
                shown = client.get(f"/console/batches/{made.id}").text
            assert "Phase go, due" in shown
            assert ("Approve phase go" in shown) is (key in (ADMIN, ONLY["admin"])), (order, key)


async def test_new_page_does_not_wait_for_the_next_rendering_as_open_ones_do() -> None:
    changes, made = Changes(), []
    pieces = Pieces(changes)

    async def render() -> str:
        made.append("x")
        return f"rendering {len(made)}"

    assert await pieces.get("key", ("jobs",), 60, render, 30) == "rendering 1"
    changes.note("jobs")
    waiting = asyncio.ensure_future(pieces.get("key", ("jobs",), 60, render, 30))
    await asyncio.sleep(0)
    assert await pieces.get("key", ("jobs",), 60, render) == "rendering 2"
    assert await pieces.get("key", ("jobs",), 60, render, 30) == "rendering 2", "nothing has changed since"
    assert not waiting.done()
    waiting.cancel()


async def test_the_more_follow_the_less_often_each_is_told() -> None:
    changes = Changes()
    with changes.following(frozenset({"jobs"}), lambda tenant_id: True) as alone:
        told = 0
        until = time.monotonic() + 6 * DEBOUNCE_SECONDS
        while time.monotonic() < until:
            changes.note("jobs")
            told += len(await alone.next(1.0))
        assert told >= 4
        crowd = [changes.following(frozenset({"jobs"}), lambda tenant_id: True) for _ in range(TOLD_PER_SECOND_MAX * 2)]
        for one in crowd:
            one.__enter__()
        assert changes.pause_seconds > 2.0
        changes.note("jobs")
        begun = time.monotonic()
        assert await alone.next(5.0) == ["jobs"]
        assert time.monotonic() - begun > 1.0, "it was told a moment ago"
        for one in crowd:
            one.__exit__(None, None, None)
        assert changes.pause_seconds < DEBOUNCE_SECONDS


async def test_quiet_stream_shows_that_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a proxy between would end it, and nobody would know a connection that is gone from a quiet one."""
    assert stream.SSE_KEEPALIVE_SECONDS == 15
    monkeypatch.setattr(stream, "SSE_KEEPALIVE_SECONDS", 0.2)
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.05)
    async with console(tmp_path) as (context, transport):
        viewer = await visitor(transport, ACME)
        asyncio.get_running_loop().call_later(1.0, context.stopping.set)
        lines = (await viewer.get("/console/stream?names=jobs")).text.splitlines()
        assert lines[:3] == ["retry: 1000", ": connected", ""]
        assert set(lines[3:]) == {": still here", ""}
        await viewer.aclose()


async def test_sample_of_a_lane_is_a_cell_of_the_heat_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = {
        "tenant_id": "acme", "request_type": "OCR", "input_ref": "https://documents.example/1.pdf",
        "output_ref": "https://documents.example/1.json", "payload": {"language": "en"}, "schema_version": "1",
    }  # fmt: skip
    async with console(tmp_path) as (context, transport):
        viewer = await visitor(transport, ADMIN)
        headers = {"Authorization": f"Bearer {ADMIN}"}
        job_id = (await viewer.post("/v1/commands", json=envelope, headers=headers)).json()["jobId"]
        lane = (await context.queries.job(job_id, lambda tenant_id: True)).spec.routing.lane
        async with asyncio.timeout(10):
            while not any(depth.ready for depth in await context.bus.depths()):
                await asyncio.sleep(0.01)
        later = ShiftedClock()
        later.shift_seconds = 100.0
        monkeypatch.setattr(context.lane_history, "_clock", later)
        await context.lane_history.take()
        text = (await viewer.get("/console/?piece=lanes")).text
        (cell,) = re.findall(r'<rect class="heat-3" x="(\d+)" y="(\d+)"[^>]*><title>([^<]*)</title>', text)
        assert (int(cell[0]), int(cell[1])) == (28 + (MINUTES - 1) * 10, lane * 10)
        assert cell[2].startswith(f"lane {lane}: the oldest waited 10")
        assert f"Now waiting on: lane {lane} (" in text
        assert text.count("heat-unknown") >= MINUTES - 3, "nothing was measured before"
        await viewer.aclose()


def test_streams_are_counted_by_session_and_given_back(server: Server) -> None:
    with signed_in(server, ACME) as client, signed_in(server, ACME) as other:
        address = "/console/stream?names=jobs"
        streams = [client.stream("GET", address) for _ in range(PER_SESSION_MAX)]
        try:
            assert {stream.__enter__().status_code for stream in streams} == {200}
            refused = client.get(address)
            assert (refused.status_code, "close some" in refused.text) == (429, True)
            assert int(refused.headers["retry-after"]) >= 1
            with other.stream("GET", address) as further:
                assert further.status_code == 200, "another session of the same key has its own"
        finally:
            for stream in streams:
                stream.__exit__(None, None, None)
        deadline = time.monotonic() + 10.0
        while True:
            with client.stream("GET", address) as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline, "streams that were closed are still counted"
            time.sleep(0.05)


async def test_streams_of_consoles_are_within_the_caps_on_streams(tmp_path: Path) -> None:
    async with console(tmp_path, streams_per_principal_max=2, streams_max=3) as (context, transport):
        first, second = await visitor(transport, viewer_key(0)), await visitor(transport, viewer_key(1))
        held = [context.waits.take(WaitKind.STREAM, "key:viewer-0") for _ in range(2)]
        refused = await first.get("/console/stream?names=jobs")
        assert (refused.status_code, "this caller has 2" in refused.text) == (429, True)
        held.append(context.waits.take(WaitKind.STREAM, "key:another"))
        refused = await second.get("/console/stream?names=jobs")
        assert (refused.status_code, "this server holds 3" in refused.text) == (429, True)
        for slot in held:
            slot.release()
        assert context.waits.held[WaitKind.STREAM] == 0, "a refused stream holds nothing"
        for client in (first, second):
            await client.aclose()
