"""A whole application behind its HTTP front, in this process, and the little that clients and workers need."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucius.api.app import create_front
from lucius.api.management import create_management
from lucius.app_context import AppContext
from lucius.bootstrap import open_app
from lucius.settings import Settings
from lucius.testing.samples import ShiftedClock

KEY = "lk_of_the_api_tests_0123456789"
CALLBACK_KEYS = ("k1:0123456789abcdef0123456789abcdef",)
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")

_numbers = count(1)


class Api:
    """One caller of one application."""

    def __init__(self, context: AppContext, client: httpx.AsyncClient, clock: ShiftedClock) -> None:
        self.context = context
        self.client = client
        self.clock = clock

    def with_key(self, key: str) -> Api:
        """The same application, called by somebody else."""
        return Api(self.context, new_client(self.context, key), self.clock)

    @staticmethod
    def assert_problem(answer: httpx.Response, status: int, code: str, pointer: str | None = None) -> dict[str, Any]:
        """The answer is this very problem, in the documented form."""
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = answer.json()
        assert set(problem) == {"type", "title", "status", "code", "detail", "errors", "correlation_id"}
        assert (problem["status"], problem["code"]) == (status, code)
        assert problem["correlation_id"]
        assert problem["detail"]
        assert problem["errors"][0]["code"] == code
        for fault in problem["errors"]:
            assert set(fault) == {"code", "pointer", "detail"}
        if pointer is not None:
            assert pointer in [fault["pointer"] for fault in problem["errors"]]
        if status in (429, 503):
            assert int(answer.headers["retry-after"]) >= 1
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
        return problem

    # --- As an operator ----------------------------------------------------------------------------------------------

    async def look(self, path: str) -> httpx.Response:
        """What the management port answers."""
        transport = httpx.ASGITransport(app=create_management(self.context.management))
        async with httpx.AsyncClient(transport=transport, base_url="http://management.test", timeout=60) as client:
            return await client.get(path)

    async def readiness(self) -> tuple[int, str, dict[str, Any]]:
        """Status code, status, and what was found, by name."""
        ready = await self.look("/readyz")
        return ready.status_code, ready.json()["status"], ready.json()["checks"]

    # --- As a client -------------------------------------------------------------------------------------------------

    @staticmethod
    def envelope(**fields: Any) -> dict[str, Any]:
        """A good one of one step, unlike any other; a field set to `...` is left out."""
        known = {
            "tenant_id": "acme",
            "request_type": "OCR",
            "input_ref": f"https://documents.example/in/{next(_numbers)}.pdf",
            "output_ref": "https://documents.example/out/1.json",
            "payload": {"language": "en"},
            "schema_version": "1",
        }
        return {name: value for name, value in (known | fields).items() if value is not ...}

    @classmethod
    def envelope_of_three(cls, **fields: Any) -> dict[str, Any]:
        payload = {"sis": {"prompt_set": ["When does it end?"]}}
        return cls.envelope(**{"request_type": "OCR_EMBEDDING_SIS", "payload": payload} | fields)

    async def submit(self, envelope: dict[str, Any] | None = None, **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/commands", json=envelope or self.envelope(**fields))

    async def post_raw(self, body: bytes, path: str = "/v1/commands", **headers: str) -> httpx.Response:
        return await self.client.post(path, content=body, headers={"Content-Type": "application/json"} | headers)

    async def accepted(self, envelope: dict[str, Any] | None = None, **fields: Any) -> str:
        answer = await self.submit(envelope, **fields)
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["jobId"]
        return job_id

    async def job(self, job_id: str, **parameters: Any) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/jobs/{job_id}", params=parameters)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def ended(self, job_id: str) -> dict[str, Any]:
        return await self.job(job_id, wait_seconds=20)

    async def events(self, job_id: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/v1/jobs/{job_id}/events")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["events"])

    async def count(self) -> int:
        """How many jobs the ledger holds."""
        answer = await self.client.get("/v1/jobs", params={"limit": 500})
        assert answer.status_code == 200, answer.text
        assert answer.json()["next"] is None
        return len(answer.json()["items"])

    async def operate(self, job_id: str, verb: str, body: Any = None) -> httpx.Response:
        return await self.client.post(f"/v1/jobs/{job_id}:{verb}", json=body if body is not None else {})

    # --- As a worker -------------------------------------------------------------------------------------------------

    async def pull(self, service: str = "ocr", max_: int = 1, wait_seconds: float = 10.0) -> list[dict[str, Any]]:
        body = {"service": service, "max": max_, "wait_seconds": wait_seconds}
        answer = await self.client.post("/v1/directives:pull", json=body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["directives"])

    async def take(self, service: str = "ocr") -> dict[str, Any]:
        """The next directive; it is waited for, and it must come."""
        directives = await self.pull(service)
        assert directives, f"no directive for {service}"
        return directives[0]

    async def call_back(
        self, kind: str, directive: dict[str, Any], token: str | None = None, **fields: Any
    ) -> httpx.Response:
        """A callback for a directive. `fields` go into its body, before the directive's own ids."""
        body = {name: directive[name] for name in IDS} | fields
        headers = {"Lucius-Callback-Token": directive["callback_token"] if token is None else token}
        async with new_client(self.context, None) as nobody:  # The token is the only credential.
            return await nobody.post(f"/v1/callbacks/{kind}", json=body, headers=headers)

    async def ack(self, directive: dict[str, Any], **fields: Any) -> httpx.Response:
        return await self.call_back("ack", directive, **fields)

    async def heartbeat(self, directive: dict[str, Any], **fields: Any) -> httpx.Response:
        return await self.call_back("heartbeat", directive, **fields)

    async def result(self, directive: dict[str, Any], status: str = "SUCCEEDED", **fields: Any) -> httpx.Response:
        return await self.call_back("result", directive, status=status, **fields)

    async def work(self, service: str = "ocr", **fields: Any) -> dict[str, Any]:
        """Take the next directive, acknowledge it and report its success."""
        directive = await self.take(service)
        assert (await self.ack(directive)).json()["outcome"] == "APPLIED"
        answer = await self.result(directive, **fields)
        assert answer.json()["outcome"] == "APPLIED", answer.text
        return directive

    async def fail(self, service: str = "ocr", failure_class: str = "NON_RETRYABLE", **fields: Any) -> dict[str, Any]:
        directive = await self.take(service)
        answer = await self.result(directive, "FAILED", failure_class=failure_class, **fields)
        assert answer.json()["outcome"] == "APPLIED", answer.text
        return directive


def new_client(context: AppContext, key: str | None) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app=create_front(context))
    return httpx.AsyncClient(transport=transport, base_url="http://lucius.test", headers=headers, timeout=60)


OpenApi = Callable[..., Awaitable[Api]]


@pytest.fixture
async def open_api(tmp_path: Path) -> AsyncIterator[OpenApi]:
    """Open an application on SQLite; keyword arguments are settings. Everything is closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_(**settings: Any) -> Api:
            known: dict[str, Any] = {
                "data": str(tmp_path / "data"),
                "api_key": KEY,
                "callback_keys": CALLBACK_KEYS,
                "sweep_interval": 0.02,
                "execution_backoff_seconds": (0.01,),
                "ack_backoff_seconds": (0.01,),
            }
            clock = ShiftedClock()
            context = await stack.enter_async_context(open_app(Settings(**known | settings), clock=clock))
            return Api(context, await stack.enter_async_context(new_client(context, KEY)), clock)

        yield open_


@pytest.fixture
async def api(open_api: OpenApi) -> Api:
    return await open_api()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "memory":
        return {"ledger": "memory", "bus": "memory"}
    return {} if request.param == "sqlite" else {"ledger": request.getfixturevalue("postgres_url")}


@pytest.fixture
async def any_api(ledger_settings: dict[str, str], open_api: OpenApi) -> Api:
    """The same, on each ledger."""
    return await open_api(**ledger_settings)


@pytest.fixture
def registry_folder(tmp_path: Path) -> Path:
    """A registry of a test's own, with the protocols that ship."""
    from lucius.registries.files import SHIPPED

    folder = tmp_path / "registry"
    for kind in ("protocols", "tenants"):
        (folder / kind).mkdir(parents=True)
    for path in (SHIPPED / "protocols").iterdir():
        (folder / "protocols" / path.name).write_text(path.read_text("utf-8"), "utf-8")
    return folder


# --- Real processes --------------------------------------------------------------------------------------------------


class LiveServer:
    """`lucius up` in a process of its own, on a port that was free. What it says goes to files: nobody reads a pipe."""

    def __init__(self, data: Path, options: tuple[str, ...], environment: dict[str, str]) -> None:
        self.data = data
        self.key = KEY
        self.environment = clean_environment(**{"LUCIUS_API_KEY": KEY} | environment)
        self._out, self._err = data.parent / "out.txt", data.parent / "err.txt"
        command = [*LUCIUS, "up", "--port", "0", "--data", str(data), *options]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, env=self.environment, stdout=out, stderr=err)
        self.url = self.wait_for(r"LUCIUS is up at (http://\S+)")

    @property
    def said(self) -> str:
        return self._out.read_text("utf-8") + self._err.read_text("utf-8")

    def wait_for(self, pattern: str, seconds: float = 60.0) -> str:
        """The first group of a pattern, once the server has said it."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.said)) is None:
            assert self.process.poll() is None, f"the server ended: {self.said}"
            assert time.monotonic() < end, f"the server never said {pattern}: {self.said}"
            time.sleep(0.02)
        return found[1] if found.groups() else found[0]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Ask it to stop; its exit code. It is not let live longer than that."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        finally:
            self.process.kill()
            self.process.wait()


LUCIUS = (sys.executable, "-m", "lucius.cli.main")


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's, without settings of LUCIUS that happen to stand in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")} | variables


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveServer]]:
    """Start servers; arguments are options, keyword arguments variables. Those still up are stopped in the end."""
    started: list[LiveServer] = []

    def start(*options: str, **environment: str) -> LiveServer:
        started.append(LiveServer(tmp_path_factory.mktemp("server") / "data", options, environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()
