"""Directives as the real server builds them, in a folder of the kit."""

from __future__ import annotations

import secrets
import shutil
import time
import uuid
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

LANES = 16
ACK_SECONDS = 10.0
TOKEN_SECONDS = 7 * 86_400
INPUT_TEXT = """\
Minutes of the lamplighters' council.

The lanterns of the harbour are lit at dusk. The keeper of the north pier is Ada Brook.
A lantern that has burnt for nine years is replaced. The next council meets on 12 June.
"""


@dataclass(frozen=True)
class Sample:
    """The service's sample work."""

    service: str
    step_type: str
    payload: Any = field(default_factory=dict)
    previous: dict[str, Any] = field(default_factory=dict)
    input_path: Path | None = None
    slow_payload: Any = None
    slow_input_path: Path | None = None
    is_last: bool = True
    """Whether the step is the job's last, whose service writes the final result to `output_ref`."""


class Directives:
    """Creates directives. Their workspaces are under `root`, and all other files under its folder `files`."""

    def __init__(self, sample: Sample, root: Path, url: str) -> None:
        self.sample = sample
        self.workspaces = root / "workspace"
        self.files = root / "files"
        self.files.mkdir()
        self._url = url
        self._input = self._copy(sample.input_path) if sample.input_path else self.files / "input.txt"
        if sample.input_path is None:
            self._input.write_text(INPUT_TEXT, "utf-8")
        self._slow_input = self._copy(sample.slow_input_path) if sample.slow_input_path else self._input
        self.missing = self.files / "input-that-does-not-exist.txt"

    def _copy(self, path: Path) -> Path:
        """Copy to where the service may read, with the same name, because a service may depend on it."""
        folder = self.files / f"input-{secrets.token_hex(4)}"
        folder.mkdir()
        return Path(shutil.copyfile(path, folder / path.name))

    def first(self, tenant: str, lease_seconds: float, work_seconds: float, is_slow: bool) -> dict[str, Any]:
        """The first attempt of a new job."""
        sample, job_id = self.sample, str(uuid.uuid4())
        output = self.files / "output" / job_id / "result"
        output.parent.mkdir(parents=True)
        slow_payload = sample.slow_payload if is_slow else None
        directive: dict[str, Any] = {
            "type": "DIRECTIVE",
            "jobId": job_id,
            "tenant_id": tenant,
            "stepId": sample.service,
            "protocol_id": sample.step_type,
            "step_type": sample.step_type,
            "service": sample.service,
            "last_step": sample.is_last,
            "lease_seconds": lease_seconds,
            "input_ref": (self._slow_input if is_slow else self._input).as_uri(),
            "output_ref": output.as_uri(),
            "payload": sample.payload if slow_payload is None else slow_payload,
            "previous": sample.previous,
            "callback_urls": {name: f"{self._url}/v1/callbacks/{name}" for name in ("ack", "result", "heartbeat")},
            "mode": "DEFAULT",
            "lane": zlib.crc32(tenant.encode()) % LANES,
            "routing_key_used": tenant,
            "correlation_id": f"contract-{job_id[:8]}",
            "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
            "contract_test": {"work_seconds": work_seconds},
        }
        return self.attempt(directive, 1)

    def attempt(self, directive: dict[str, Any], attempt_no: int) -> dict[str, Any]:
        """The same step with another attempt number, lease, token and folder."""
        tenant, job_id = str(directive["tenant_id"]), str(directive["jobId"])
        place = f"{quote(tenant, safe='')}/{job_id}/{quote(directive['step_type'], safe='')}/{attempt_no}/"
        ack_by = datetime.now(UTC) + timedelta(seconds=ACK_SECONDS)
        return directive | {
            "attempt_no": attempt_no,
            "lease_id": str(uuid.uuid4()),
            "ack_by": ack_by.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "workspace_ref": f"{self.workspaces.as_uri()}/{place}",
            "callback_token": f"v1.contract.{int(time.time()) + TOKEN_SECONDS}.{secrets.token_urlsafe(32)}",
        }
