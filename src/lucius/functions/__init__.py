"""The function worker: functions in Python that runbooks call. Of the rest of lucius it imports only `client` and
`kit`.

    from lucius.functions import FunctionWorker, StillRunning

    worker = FunctionWorker("exchange")

    @worker.function("Start-MailboxMove")
    async def start_mailbox_move(UserPrincipalName: str) -> dict:
        move = await look_at_move(UserPrincipalName)
        return {"movedAt": move.ended_at} if move.ended else StillRunning({"percentComplete": move.percent})

    worker.run()

The path of a job: a `source` provides it, the `loop` takes it and renews its lock, `run` calls the `function` and
builds the result, `outbox` sends that result until it is answered. `lucius.kit` pulls, sends, and serves health and
metrics. A job may be delivered twice (a worker died, a lock expired), so functions must be idempotent: `Job.step_key`
is the key for that.
"""

from lucius.functions.errors import Fail, RateLimited, Throttled, WorkerUnusable
from lucius.functions.job import Job, StillRunning
from lucius.functions.settings import WorkerSettings, read_settings
from lucius.functions.source import HttpSource, JobSource, SourceFailed, SourceRefused
from lucius.functions.worker import FunctionWorker
from lucius.kit.errors import ServiceUnusable

__all__ = [
    "Fail",
    "FunctionWorker",
    "HttpSource",
    "Job",
    "JobSource",
    "RateLimited",
    "ServiceUnusable",
    "SourceFailed",
    "SourceRefused",
    "StillRunning",
    "Throttled",
    "WorkerSettings",
    "WorkerUnusable",
    "read_settings",
]
