"""A receiver that really listens, a ledger that owes it a call, and a clock that obeys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from msgspec import Raw, structs

from lucius.domain.attempt import Failure
from lucius.domain.job import RULES_VERSION, Job, JobSpec, JobStatus
from lucius.domain.protocol import Policy
from lucius.domain.routing import DecisionSource, Mode, route
from lucius.domain.step import Step, StepSpec, StepStatus
from lucius.ledgers.memory import MemoryLedger
from lucius.ports.ledger import Change, Webhook
from lucius.ports.observer import Observer
from lucius.ports.registry import Globals, RegistrySnapshot, Tenant
from lucius.settings import Settings
from lucius.webhooks import WebhookSender

JOB_ID = "018f6b1e-7c00-7000-8000-0123456789ab"


class Clock:
    def __init__(self) -> None:
        self.at = 1_700_000_000_000

    def now(self) -> int:
        return self.at

    def job_id(self) -> str:
        return JOB_ID

    def lease_id(self) -> str:
        return "lease"

    def jitter(self) -> float:
        return 0.0


class Receiver:
    """Keeps every call; answers with the statuses it is given, the last one for ever."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.statuses = [200]
        self.body = b"ok"
        self.headers: dict[str, str] = {}
        self.delay_seconds = 0.0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?key=hidden"

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append((request.path_qs, headers, await request.read()))
        await asyncio.sleep(self.delay_seconds)
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(
            status=status, body=self.body, headers=self.headers | {"Location": f"http://127.0.0.1:{self.port}/other"}
        )


class Watcher(Observer):
    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.failures: list[BaseException] = []

    def webhook_called(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def failed(self, what: str, error: BaseException) -> None:
        self.failures.append(error)


class Registry:
    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {}

    def snapshot(self) -> RegistrySnapshot:
        return RegistrySnapshot("v", {}, {}, self.tenants, Globals())


class Rig:
    """Everything that a sender needs, to be changed before it is opened."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.ledger = MemoryLedger()
        self.clock = Clock()
        self.registry = Registry()
        self.watcher = Watcher()
        self.environ: dict[str, str] = {}
        self.settings = Settings(webhook_private_addresses_allowed=True, webhook_timeout_seconds=2.0)

    def set(self, **settings: Any) -> None:
        self.settings = structs.replace(self.settings, **settings)

    def sender(self, **more: Any) -> WebhookSender:
        return WebhookSender(
            self.ledger,
            self.registry,
            self.clock,
            self.settings,
            self.watcher,
            environ=self.environ,
            poll_seconds=0.01,
            **more,
        )

    async def owe(
        self, url: str | None = None, job_id: str = JOB_ID, failed: bool = False, tenant_id: str = "acme"
    ) -> None:
        job = ended_job(job_id, failed)
        webhook = Webhook(job_id=job_id, url=url or self.receiver.url, tenant_id=tenant_id, next_at=self.clock.now())
        await self.ledger.commit([Change(before=None, after=job, webhook=webhook)])

    def row(self, job_id: str = JOB_ID) -> Webhook:
        return self.ledger._webhooks[job_id]

    async def outcomes(self, count: int) -> list[str]:
        """Wait until so many calls were concluded."""
        async with asyncio.timeout(10):
            while len(self.watcher.outcomes) < count:
                await asyncio.sleep(0.005)
        return self.watcher.outcomes


def ended_job(job_id: str, failed: bool) -> Job:
    at = 1_699_999_999_000
    spec = JobSpec(
        job_id=job_id,
        tenant_id="acme",
        request_type="OCR",
        protocol_id="OCR",
        protocol_version=1,
        schema_version="1",
        routing=route("acme", None, Mode.DEFAULT, DecisionSource.GLOBAL_CONFIG, "test"),
        input_ref=Raw(b'"https://x.example/in"'),
        output_ref=Raw(b'"https://x.example/out"'),
        idempotency_key=None,
        idempotency_hash="h",
        correlation_id="c",
        deadline_at=at + 10**9,
        created_at=at,
        rules_version=RULES_VERSION,
    )
    step_spec = StepSpec(
        step_id="ocr", step_type="OCR", service="ocr", payload=Raw(b"{}"), policy=Policy(), workspace_ref="file:///w"
    )
    step = Step(spec=step_spec, created_at=at, updated_at=at, status=StepStatus.SUCCEEDED)
    return Job(
        spec=spec,
        status=JobStatus.FAILED_FINAL if failed else JobStatus.SUCCEEDED,
        steps=(step,),
        updated_at=at,
        completed_at=at,
        error=Failure("STEP_FAILED", "the scan is blank") if failed else None,
    )


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.port = runner.addresses[0][1]
    yield receiver
    await runner.cleanup()


@pytest.fixture
def rig(receiver: Receiver) -> Rig:
    return Rig(receiver)


@pytest.fixture
def job_ids() -> Callable[[int], list[str]]:
    return lambda count: [f"018f6b1e-7c00-7000-8000-{number:012x}" for number in range(count)]
