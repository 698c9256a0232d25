"""The index: rows by which jobs are found without a scan.

A hint says where to look; what counts is the job's own row, which lists its hints. Hints are written before the job's
row and deleted after it, so a crash can leave a hint too many, never one too few: a reader compares each hint that can
become wrong with the list in the job's row. The key of such a hint ends with the revision that it was first written
for. So no key is ever used again, and a hint that a job has outlived can be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from lucius.azure.keys import SEPARATOR, instant, key, part
from lucius.domain.attempt import DispatchStatus
from lucius.domain.job import OUTBOX, Job, JobStatus, step_millis
from lucius.domain.search import SearchValue
from lucius.domain.signature import error_signature
from lucius.domain.step import StepStatus
from lucius.domain.waiting import wait_cause
from lucius.ports.ledger import HeldLine, Webhook

Values = Mapping[str, Any]

REVISION_DIGITS = 8
HASHED_CHARS = 32

_encode = msgspec.json.Encoder().encode
_decode_millis = msgspec.json.Decoder(dict[str, int]).decode


def newest_first(job_id: str) -> str:
    """A part by which jobs sort newest first: ids begin with the time."""
    try:
        return f"{(1 << 128) - 1 - UUID(job_id).int:032x}"
    except ValueError:
        return "~" + hashed(job_id)


def hashed(*texts: str) -> str:
    """Any text in few characters, for values that may be longer than a key."""
    joined = "\0".join(texts)
    return sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:HASHED_CHARS]


def revision_of(hint: str) -> int:
    return int(hint.rpartition(SEPARATOR)[2])


def with_revision(base: str, revision: int) -> str:
    return f"{base}{SEPARATOR}{revision:0{REVISION_DIGITS}d}"


def base_of(hint: str) -> str:
    return hint.rpartition(SEPARATOR)[0]


# --- Prefixes, by which hints are read -------------------------------------------------------------------------------


def by_tenant(tenant_id: str) -> str:
    return key("TENANT", part(tenant_id))


def by_status(status: str, tenant_id: str | None = None) -> str:
    return key("STATUS", status) if tenant_id is None else key("STATUS_OF", part(tenant_id), status)


def by_request_type(request_type: str) -> str:
    return key("TYPE", hashed(request_type))


def by_wait_cause(cause: str) -> str:
    return key("WAIT", cause)


def by_signature(signature: str) -> str:
    return key("SIGNATURE", hashed(signature))


def by_correlation(correlation_id: str) -> str:
    return key("CORRELATION", hashed(correlation_id))


def by_idempotency_key(key_: str) -> str:
    return key("KEY", hashed(key_))


def by_search_value(value: SearchValue) -> str:
    return key("VALUE", hashed(value.field, value.value))


def by_engine(engine: str) -> str:
    return key("OPEN", part(engine))


def unacknowledged_by(engine: str) -> str:
    return key("UNACKNOWLEDGED", part(engine))


def undelivered_by(engine: str) -> str:
    return key("UNDELIVERED", part(engine))


def held_in(line: HeldLine) -> str:
    return key("HELD", part(line.tenant_id), f"{line.lane:05d}", part(line.service))


def webhooks_of(tenant_id: str) -> str:
    return key("WEBHOOK", part(tenant_id))


def succeeded(request_type: str, tenant_id: str | None = None) -> str:
    if tenant_id is None:
        return key("SUCCEEDED", hashed(request_type))
    return key("SUCCEEDED_OF", part(tenant_id), hashed(request_type))


# --- Hints of a job --------------------------------------------------------------------------------------------------


def columns(job: Job) -> dict[str, Any]:
    """What a hint says about its job."""
    return {
        "jobId": job.job_id,
        "tenant_id": job.spec.tenant_id,
        "request_type": job.spec.request_type,
        "created_at": job.spec.created_at,
        "completed_at": job.completed_at,
        "error_signature": error_signature(job) if job.status is JobStatus.FAILED_FINAL else None,
    }


def values_of(hint: str, job: Job) -> dict[str, Any]:
    """The columns of this hint of the job."""
    if hint.startswith(("SUCCEEDED:", "SUCCEEDED_OF:")):
        return {**columns(job), "step_millis": _encode(step_millis(job)).decode()}
    return columns(job)


def read_step_millis(values: Values) -> dict[str, int]:
    return _decode_millis(values["step_millis"])


def lasting(job: Job) -> list[str]:
    """Keys of hints that hold for as long as the job exists."""
    spec, place = job.spec, newest_first(job.job_id)
    found = [key("JOB", place), key(by_tenant(spec.tenant_id), place), key(by_request_type(spec.request_type), place)]
    found += [key(by_search_value(value), place) for value in dict.fromkeys(spec.searchable)]
    if spec.correlation_id != spec.job_id:
        found.append(key(by_correlation(spec.correlation_id), place))
    if spec.idempotency_key is not None and spec.redrive_of is None:
        found.append(key(by_idempotency_key(spec.idempotency_key), place))
    return found


def changing(job: Job) -> list[str]:
    """Hints that hold for the state that a job is in, without their revision."""
    spec, status, place = job.spec, job.status.value, newest_first(job.job_id)
    found = [key(by_status(status), place), key(by_status(status, spec.tenant_id), place)]
    if job.completed_at is not None:
        found.append(key("ENDED", instant(job.completed_at), spec.job_id))
    if job.status is JobStatus.SUCCEEDED:
        found += [key(succeeded(spec.request_type), place), key(succeeded(spec.request_type, spec.tenant_id), place)]
    if job.status is JobStatus.FAILED_FINAL:
        found.append(key("DEAD", place))
        signature = error_signature(job)
        if signature is not None:
            found.append(key(by_signature(signature), place))
    if not job.is_terminal:
        found += _open(job, place)
    return [*found, *_unsent(job)]


def _open(job: Job, place: str) -> list[str]:
    cause = wait_cause(job) or ""
    found = [key(by_engine(job.engine), place), key(by_wait_cause(cause), place)]
    if cause in ("BUS", "ACK"):
        found.append(key(unacknowledged_by(job.engine), job.job_id))
    if is_unsent(job) or job.current_step.status is StepStatus.FAILED_RETRY:
        found.append(key(undelivered_by(job.engine), job.job_id))
    if job.wake_at is not None and job.engine == OUTBOX:
        found.append(key("DUE", instant(job.wake_at), job.job_id))
    return found


def is_unsent(job: Job) -> bool:
    attempt = job.current_step.attempt
    return attempt is not None and attempt.dispatch is DispatchStatus.PENDING


def _unsent(job: Job) -> list[str]:
    attempt = job.current_step.attempt
    if attempt is None or not is_unsent(job):
        return []
    found = [key("OUTBOX", instant(attempt.created_at), job.job_id)]
    if attempt.is_held:
        line = HeldLine(job.spec.tenant_id, job.spec.routing.lane, job.current_step.spec.service)
        found.append(key(held_in(line), part(job.engine), job.job_id))
    elif job.engine == OUTBOX:
        found.append(key("UNSENT", instant(attempt.claimed_until), job.job_id))
    return found


def carried_over(job: Job, before: list[str], revision: int) -> list[str]:
    """The hints of a job's new state with their revisions: those that it had before keep theirs."""
    known = {base_of(hint): hint for hint in before}
    return [known.get(base) or with_revision(base, revision) for base in changing(job)]


def webhook_key(webhook: Webhook) -> str:
    return key(webhooks_of(webhook.tenant_id), instant(webhook.next_at), webhook.job_id)
