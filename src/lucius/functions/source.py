"""Where jobs come from and results go: the interface, and its implementation over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from lucius.client.call import Call
from lucius.client.calls import services
from lucius.client.errors import AnswerInvalid, ClientError, content_of
from lucius.client.retrying import WAITS_SATURATED
from lucius.client.transport import TransportOptions
from lucius.functions.job import Result
from lucius.functions.settings import WorkerSettings, key_now
from lucius.kit.consumer import PullFailed
from lucius.kit.identity import Identity

if TYPE_CHECKING:
    from lucius.client.async_transport import AsyncTransport

DENIED = (401, 403)
MAY_PASS = (408, 429)
ADDRESS_HINT = "LUCIUS_ORCHESTRATOR_URL may not be the address of a LUCIUS server"


class SourceFailed(PullFailed):
    """The call was not answered and may be repeated."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class SourceRefused(SourceFailed):
    """The call was refused and would be again. `denied`: because of the key, not the content."""

    is_refused = True

    def __init__(self, message: str, denied: bool = False) -> None:
        super().__init__(message)
        self.denied = denied


class JobSource(Protocol):
    """Jobs of one worker id. Methods raise `SourceFailed` or `SourceRefused`. They may be cancelled at any await, and
    are called by one task at a time."""

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        """At most `count_max` jobs, each locked for 60 s. Waits up to `wait_seconds` while there are none."""
        ...

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        """For each, in order, whether its lock was renewed for 60 s from now."""
        ...

    async def answer(self, results: Sequence[Result], /) -> list[Any]:
        """One `{jobId, outcome}` each, or `{jobId, code, detail}` for a rejected one. Settles the jobs. A result may be
        sent twice, because its first answer was lost."""
        ...


class HttpSource:
    """LUCIUS over HTTP, for the duration of an `async with`."""

    def __init__(self, worker_id: str, settings: WorkerSettings) -> None:
        self._worker_id = worker_id
        identity = Identity(settings.version)
        identity.in_work = lambda: len(self._in_work)
        self._in_work: set[str] = set()
        """Pulled jobs without an answer yet."""
        self._tokens: dict[str, str] = {}
        """Tokens of pulled jobs without an answer yet: needed to renew their locks."""
        self._transport = open_transport(settings, identity)

    async def __aenter__(self) -> HttpSource:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def pull(self, count_max: int, wait_seconds: float, /) -> list[Any]:
        jobs = await self._list(services.pull_jobs(self._worker_id, count_max, wait_seconds), "jobs")
        taken = dict(map(_token, jobs))
        self._tokens |= {job_id: token for job_id, token in taken.items() if token is not None}
        self._in_work |= taken.keys()
        return jobs

    async def renew(self, job_ids: Sequence[str], /) -> list[bool]:
        tokens = [self._tokens.get(job_id) for job_id in job_ids]
        return await self._list(services.renew_jobs(self._worker_id, job_ids, tokens), "renewed")

    async def answer(self, results: Sequence[Result], /) -> list[Any]:
        answers = await self._list(services.answer_jobs(results), "outcomes")
        for result in results:
            self._tokens.pop(result["jobId"], None)
            self._in_work.discard(result["jobId"])
        return answers

    async def _list(self, call: Call, name: str) -> list[Any]:
        try:
            content = content_of(await self._transport.send(call))
        except ClientError as error:
            raise _source_error(call.path, error) from error
        found = content.get(name)
        if not isinstance(found, list):
            raise SourceFailed(f"{call.path} was answered without {name}: {ADDRESS_HINT}")
        return found


def open_transport(settings: WorkerSettings, identity: Identity | None = None) -> AsyncTransport:
    told = None if identity is None else identity.headers
    options = TransportOptions(refreshed_key=lambda: key_now(settings), told=told)
    # Imported when a service runs, not when its code is imported.
    from lucius.client.async_transport import AsyncTransport

    return AsyncTransport(settings.url, settings.api_key, options)


def _token(job: Any) -> tuple[str, str | None]:
    """The id and token of a raw job; it is validated when it is taken."""
    fields = job if isinstance(job, dict) else {}
    correlation = fields.get("correlationData")
    token = correlation.get("token") if isinstance(correlation, dict) else None
    return str(fields.get("jobId")), token if isinstance(token, str) else None


def _source_error(path: str, error: ClientError) -> SourceFailed:
    if error.status is None:
        return SourceFailed(f"{path} was not answered: {error.message}")
    if isinstance(error, AnswerInvalid):
        return SourceFailed(f"{path}: {error.message} {ADDRESS_HINT}")
    problem = " ".join(str(error.problem[name])[:500] for name in ("code", "detail") if error.problem.get(name))
    message = f"{path} was answered with HTTP status {error.status} {problem}".rstrip()
    if error.status in DENIED:
        return SourceRefused(f"{message}: the key in LUCIUS_API_KEY is missing, wrong, or lacks the role work", True)
    if 400 <= error.status < 500 and error.status not in MAY_PASS:
        return SourceRefused(message)
    failed = SourceFailed(message, error.retry_after_seconds)
    failed.is_reachable = error.code == WAITS_SATURATED
    return failed
