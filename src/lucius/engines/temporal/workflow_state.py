"""The state of a job's workflow. The ledger may lag behind it, especially while no worker runs."""

from __future__ import annotations

import asyncio

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from lucius.domain.job import Job

QUERY_SECONDS_MAX = 2.0
"""How long a caller waits for a worker to answer."""


async def ask_workflow(client: Client, job: Job) -> Job | None:
    """The job once its workflow has decided all facts received so far; None if no worker answers.

    For a job that Temporal does not know, the ledger's state counts: its workflow will be started from there.
    """
    handle = client.get_workflow_handle(job.job_id)
    try:
        async with asyncio.timeout(QUERY_SECONDS_MAX):
            expected: Job = await handle.query("expected_state", result_type=Job)
    except TimeoutError:
        return None
    except WorkflowQueryFailedError:
        return None  # A worker of an earlier version, which does not know the query.
    except RPCError as error:
        return job if error.status is RPCStatusCode.NOT_FOUND else None
    # A workflow that is behind the ledger is about to take over the ledger's state.
    return expected if expected.revision >= job.revision else None
