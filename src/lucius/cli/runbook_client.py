"""The API of runbooks and batches as the commands see it: plain dictionaries in and out, as in `client`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lucius.cli.client import Client

if TYPE_CHECKING:
    from lucius.cli.main import Connection


class RunbookClient(Client):
    # --- Runbooks ----------------------------------------------------------------------------------------------------

    def runbooks(self) -> dict[str, Any]:
        return self._read("/v1/runbooks")

    def publish(self, text: str, overdue_behavior: str, rerun_init: bool) -> dict[str, Any]:
        body = {"yaml": text, "overdue_behavior": overdue_behavior, "rerun_init": rerun_init}
        return self._post("/v1/runbooks", body)

    def check_runbook(self, text: str) -> dict[str, Any]:
        """Whether the text is a runbook, and every fault with its line if not."""
        return self._post("/v1/runbooks:validate", {"yaml": text})

    def runbook(self, name: str, version: int | None = None) -> dict[str, Any]:
        return self._read(runbook_path(name), {"version": str(version)} if version is not None else {})

    def runbook_diff(self, name: str, before: int, after: int) -> dict[str, Any]:
        return self._read(runbook_path(name) + "/diff", {"from": str(before), "to": str(after)})

    def runbook_events(self, name: str, count_max: int, cursor: str = "") -> dict[str, Any]:
        return self._pages(runbook_path(name) + "/events", "items", {}, count_max, cursor)

    def act_on_runbook(self, name: str, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """`retire`, `stop`, `start`, `confirm`, `preview` or `dry-run`."""
        return self._post(f"{runbook_path(name)}:{verb}", body or {})

    # --- Batches -----------------------------------------------------------------------------------------------------

    def batches(self, filters: Mapping[str, str], count_max: int, cursor: str = "") -> dict[str, Any]:
        return self._pages("/v1/batches", "items", dict(filters), count_max, cursor)

    def create_batch(self, runbook: str, csv: str, start: str | None, advance: str) -> dict[str, Any]:
        body = {"runbook": runbook, "csv": csv, "advance": advance, **({"start": start} if start else {})}
        return self._post("/v1/batches", body)

    def batch(self, batch_id: int, patience_seconds: float = 0.0) -> dict[str, Any]:
        return self._read(batch_path(batch_id), patience_seconds=patience_seconds)

    def members(
        self, batch_id: int, status: str, count_max: int, cursor: str = "", key: str | None = None
    ) -> dict[str, Any]:
        params = {"status": status, **({"key": key} if key is not None else {})}
        return self._pages(batch_path(batch_id) + "/members", "items", params, count_max, cursor)

    def batch_events(self, batch_id: int, count_max: int, cursor: str = "") -> dict[str, Any]:
        return self._pages(batch_path(batch_id) + "/events", "items", {}, count_max, cursor)

    def export(self, batch_id: int) -> bytes:
        """The batch as CSV."""
        return self._send("GET", batch_path(batch_id) + "/export").content

    def act_on_batch(self, batch_id: int, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """`advance`, `cancel`, `resume`, `retry`, `remove` or `add`."""
        return self._post(f"{batch_path(batch_id)}:{verb}", body or {})

    def remove_members(self, batch_id: int, members: Sequence[str]) -> dict[str, Any]:
        return self.act_on_batch(batch_id, "remove", {"members": list(members)})

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._content(self._send("POST", path, body=dict(body)))


def open_client(connection: Connection) -> RunbookClient:
    return RunbookClient(connection.url, connection.key())


def runbook_path(name: str) -> str:
    return f"/v1/runbooks/{quote(name, safe='')}"


def batch_path(batch_id: int) -> str:
    return f"/v1/batches/{batch_id}"
