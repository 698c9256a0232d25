"""The function worker: the functions that runbooks call, in Python. It imports nothing of the rest of lucius.

    from lucius.functions import FunctionWorker, StillRunning

    worker = FunctionWorker("exchange")

    @worker.function("Start-MailboxMove")
    async def start_mailbox_move(UserPrincipalName: str) -> dict:
        move = await look_at_move(UserPrincipalName)
        return {"movedAt": move.ended_at} if move.ended else StillRunning({"percentComplete": move.percent})

    worker.run()

What a job goes through here, in order: a `source` gives it, the `loop` takes it up and keeps its lock, `run` makes a
result of it by calling the `function`, `outbox` sends that result until it is answered. A job may be delivered twice (a
worker died, a lock ran out), so a function must have the same effect once or twice: `Job.step_key` is the key for that.
"""

from lucius.functions.errors import Fail, Throttled, WorkerUnusable
from lucius.functions.job import Job, StillRunning
from lucius.functions.settings import WorkerSettings, read_settings
from lucius.functions.source import HttpSource, JobSource, SourceFailed, SourceRefused
from lucius.functions.worker import FunctionWorker

__all__ = [
    "Fail",
    "FunctionWorker",
    "HttpSource",
    "Job",
    "JobSource",
    "SourceFailed",
    "SourceRefused",
    "StillRunning",
    "Throttled",
    "WorkerSettings",
    "WorkerUnusable",
    "read_settings",
]
