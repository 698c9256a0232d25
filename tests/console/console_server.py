"""`lucius up` in a process of its own, with keys of several roles."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import httpx

import lucius

ADMIN, OPERATOR, READER, ACME = (f"lk_console_{name}_0123456789" for name in ("admin", "operator", "reader", "acme"))
ONLY = {role: f"lk_console_only_{role}_0123456789" for role in ("submit", "work", "operate", "admin")}
"""Keys that have this role besides `read`."""
START_SECONDS_MAX = 60.0
SHIPPED = Path(lucius.__file__).parent / "registries" / "shipped"
INVOICE = """\
id: INVOICE
version: 1
request_types: [INVOICE]
steps:
  - id: read
    type: READ
    service: reader
    payload:
      searchable: [customer]
      schema: {type: object, properties: {customer: {type: string}}}
"""
HOSTILE = "<script>document.title='owned'</script> =cmd|' /C calc'!A0 " + "x" * 400
"""A value that must be shown as text."""
IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
_numbers = count(1)


def keys_file() -> str:
    keys = (
        ("operator", OPERATOR, '"*"', "[read, operate, submit]"),
        ("reader", READER, '"*"', "[read]"),
        ("acme", ACME, "[acme]", "[read, operate, submit]"),
        *((f"only-{role}", ONLY[role], '"*"', f"[read, {role}]") for role in ONLY),
    )
    return "".join(
        f"- {{name: {name}, sha256: {hashlib.sha256(key.encode()).hexdigest()}, tenants: {tenants}, roles: {roles}}}\n"
        for name, key, tenants, roles in keys
    )


class Server:
    """`lucius up` in a process of its own, and what clients and services do with it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        (folder / "keys.yaml").write_text(keys_file())
        shutil.copytree(SHIPPED, folder / "registry")
        (folder / "registry" / "protocols" / "invoice.yaml").write_text(INVOICE)
        # The settings of the developer's own server must not be in the way.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LUCIUS_")}
        environment |= {
            "LUCIUS_DATA": str(folder / "data"), "LUCIUS_API_KEY": ADMIN, "LUCIUS_PORT": "0",
            "LUCIUS_REGISTRY": str(folder / "registry"),
            "LUCIUS_API_KEYS_FILE": str(folder / "keys.yaml"), "LUCIUS_MANAGEMENT_PORT": "off",
            **settings,
        }  # fmt: skip
        self._taken: dict[tuple[str, str], dict[str, Any]] = {}
        self.log = (folder / "log").open("w+")
        command = [Path(sys.executable).with_name("lucius"), "up", "--no-services"]
        self.process = subprocess.Popen(command, env=environment, cwd=folder, stdout=self.log, stderr=self.log)
        self.url = self._said(r"LUCIUS is up at (http://\S+)")
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {ADMIN}"}, timeout=30)

    @property
    def link(self) -> str:
        """The link that it printed."""
        return self._said(r"console +(http://\S+/sign-in/\S+)")

    def _said(self, pattern: str) -> str:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline and self.process.poll() is None:
            text = Path(self.log.name).read_text()
            found = re.search(pattern + r"\s", text)
            if found:
                return found[1]
            time.sleep(0.02)
        raise AssertionError(Path(self.log.name).read_text())

    def stop(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.log.close()

    # --- As a client and as a service --------------------------------------------------------------------------------

    def submit(self, **fields: Any) -> str:
        envelope = {
            "tenant_id": "acme",
            "request_type": "OCR",
            "input_ref": f"https://documents.example/in/{next(_numbers)}.pdf",
            "output_ref": "https://documents.example/out/1.json",
            "payload": {"language": "en"},
            "schema_version": "1",
        }
        answer = self.client.post("/v1/commands", json=envelope | fields)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobId"])

    def take(self, job_id: str, service: str = "ocr", headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The directive of this job; those of others are kept until they are asked for. `headers`: who asks."""
        for _ in range(50):
            if (job_id, service) in self._taken:
                return self._taken.pop((job_id, service))
            body = {"service": service, "max": 50, "wait_seconds": 5}
            for one in self.client.post("/v1/directives:pull", json=body, headers=headers).json()["directives"]:
                self._taken[one["jobId"], service] = dict(one)
        raise AssertionError(f"no directive of {job_id}")

    def call_back(self, kind: str, directive: dict[str, Any], **fields: Any) -> None:
        body = {name: directive[name] for name in IDS} | fields
        headers = {"Lucius-Callback-Token": directive["callback_token"]}
        answer = self.client.post(f"/v1/callbacks/{kind}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    def fail(self, job_id: str, message: str = "the page is blank", code: str = "BLANK_PAGE") -> None:
        """Make a job fail for good."""
        error = {"code": code, "message": message}
        self.call_back("result", self.take(job_id), status="FAILED", failure_class="NON_RETRYABLE", error=error)

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/v1/jobs/{job_id}").json())
