"""A platform service in the standard library alone: correct, or with one defect of `planted.py`, named by `--fault`.

It counts the words of a text. With `--rush` it does not heed `contract_test.work_seconds`, which is no defect.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from planted import FAULTS, WRITES_ALWAYS

IDS = ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")
SLOTS = 4
TIMEOUT_SECONDS = 30.0
DRAIN_SECONDS = 20.0
LARGE_BYTES = 65_536


class Stopped(Exception):
    """The work is to end: `STALE` silently, `CANCELLED` with a RESULT."""


class Attempt:
    def __init__(self, directive: dict[str, Any]) -> None:
        self.directive = directive
        self.stopped = ""
        self.ended = threading.Event()

    def look(self) -> None:
        if self.stopped:
            raise Stopped(self.stopped)


class Worker:
    def __init__(self, fault: str, is_rushed: bool) -> None:
        self.fault = fault
        self.is_rushed = is_rushed
        self.url = urlsplit(os.environ["LUCIUS_ORCHESTRATOR_URL"])
        self.key = os.environ["LUCIUS_API_KEY"]
        self.service = os.environ["LUCIUS_SERVICE"]
        self.state = Path(os.environ["LUCIUS_PLATFORM_STATE"])
        self.stopping = threading.Event()
        self.guard = threading.Condition()
        self.in_work: dict[Any, Attempt] = {}
        self.ended: set[Any] = set()
        self.token = ""

    def run(self) -> int:
        lock = self.state / "lock"
        if self.fault == "stale-lock":
            if lock.exists():
                print("another worker is running: there is a lock file", file=sys.stderr)
                return 1
            lock.touch()
        self.send_left_over()
        pulling = threading.Thread(target=self.pull_for_ever, daemon=True)
        pulling.start()
        while not self.stopping.wait(0.1):
            if not pulling.is_alive():
                return 1
        if self.fault == "forgets-on-sigterm":
            return 0
        with self.guard:
            self.guard.wait_for(lambda: not self.in_work, DRAIN_SECONDS)
        return 0

    # --- Calls -------------------------------------------------------------------------------------------------------

    def post(
        self, path: str, body: Any, headers: dict[str, str], timeout: float = TIMEOUT_SECONDS
    ) -> tuple[int, dict[str, Any], float]:
        """Status, content and Retry-After; the status is 0 if there was no answer."""
        connection = http.client.HTTPConnection(str(self.url.hostname), self.url.port, timeout=timeout)
        try:
            content = json.dumps(body).encode()
            connection.request("POST", path, content, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            answer = response.read()
            retry_after = response.getheader("Retry-After") or "0"
            return response.status, json.loads(answer), float(retry_after)
        except (OSError, http.client.HTTPException, ValueError):
            return 0, {}, 0.0
        finally:
            connection.close()

    def pull_for_ever(self) -> None:
        failures = 0
        while not self.stopping.is_set():
            with self.guard:
                self.guard.wait_for(lambda: len(self.in_work) < SLOTS, 1.0)
                free = SLOTS - len(self.in_work)
            if free <= 0:
                continue
            wait = 0 if self.fault == "busy-polls" else 20
            count = 50 if self.fault == "drops-when-busy" else free
            body = {"service": self.service, "max": count, "wait_seconds": wait}
            status, answer, _ = self.post("/v1/directives:pull", body, {"Authorization": f"Bearer {self.key}"}, 60.0)
            if status != 200:
                if self.fault == "exits-when-pull-fails":
                    return
                self.pause(failures if self.fault != "pull-hammers" else -8)
                failures += 1
                continue
            failures = 0
            if self.fault == "busy-polls":
                time.sleep(0.02)
            for directive in answer["directives"]:
                self.take(directive)

    def pause(self, failures: int, least_seconds: float = 0.0) -> None:
        ceiling = min(3.0, 0.2 * 2.0 ** min(failures, 8))
        time.sleep(max(least_seconds, random.uniform(ceiling / 2, ceiling)))

    def send(self, kind: str, directive: dict[str, Any], fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Until there is an answer that decides something."""
        body = {name: directive[name] for name in IDS} | fields
        if self.fault == "first-attempt-always":
            body["attempt_no"] = 1
        failures = 0
        while True:
            token = self.token if self.fault == "shared-token" else directive["callback_token"]
            status, answer, retry_after = self.sent_once(kind, body, token)
            if self.gives_up(kind, status) or not self.is_to_repeat(kind, status, answer):
                return status, answer
            if self.fault == "result-hammers" and kind == "RESULT":
                continue
            self.pause(failures, 0.0 if self.fault == "ignores-retry-after" else retry_after)
            failures += 1

    def sent_once(self, kind: str, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any], float]:
        path, headers = f"/v1/callbacks/{kind.lower()}", {"Lucius-Callback-Token": token}
        if self.fault == "ack-impatient" and kind == "ACK":
            return self.post(path, body, headers, 1.0)
        if self.fault == "result-impatient" and kind == "RESULT":
            while not (found := self.post(path, body, headers, 0.2))[0]:
                pass
            return found
        return self.post(path, body, headers)

    def gives_up(self, kind: str, status: int) -> bool:
        planted = {
            ("ack-once", "ACK", 503),
            ("ack-dropped", "ACK", 0),
            ("ack-impatient", "ACK", 0),
            ("result-once", "RESULT", 503),
            ("result-dropped", "RESULT", 0),
        }
        return (self.fault, kind, status) in planted or (kind == "HEARTBEAT" and status != 200)

    def is_to_repeat(self, kind: str, status: int, answer: dict[str, Any]) -> bool:
        if status in (0, 429) or status >= 500:
            return True
        if kind != "RESULT":
            return False
        wrong = {
            "repeats-duplicate": answer.get("outcome") == "DUPLICATE",
            "repeats-late": answer.get("outcome") == "LATE",
            "repeats-stale": status == 409,
            "repeats-refused": status in (413, 422),
            "repeats-unauthenticated": status == 401,
        }
        return wrong.get(self.fault, False)

    # --- One directive -----------------------------------------------------------------------------------------------

    def take(self, directive: dict[str, Any]) -> None:
        if self.fault == "dies-on-large" and len(json.dumps(directive)) > LARGE_BYTES:
            os._exit(70)
        if self.fault == "dies-on-unknown-field" and "contract_test_unknown" in directive:
            os._exit(71)
        key = tuple(directive[name] for name in IDS[: 2 if self.fault == "dedups-on-step" else 5])
        attempt = Attempt(directive)
        with self.guard:
            if self.fault != "no-memory-of-work" and key in self.in_work:
                return
            if self.fault != "no-memory-of-ends" and key in self.ended:
                return
            if self.fault == "drops-when-busy" and len(self.in_work) >= SLOTS:
                threading.Thread(target=self.send, args=("ACK", directive, {}), daemon=True).start()
                return
            if self.fault == "remembers-too-early" and self.was_noted(directive):
                return
            self.in_work[key if key not in self.in_work else object()] = attempt
            self.token = directive["callback_token"]
        threading.Thread(target=self.handle, args=(key, attempt), daemon=True).start()

    def handle(self, key: Any, attempt: Attempt) -> None:
        try:
            self.attend(attempt)
        finally:
            attempt.ended.set()
            with self.guard:
                self.in_work = {one: held for one, held in self.in_work.items() if held is not attempt}
                self.ended.add(key)
                self.guard.notify_all()

    def attend(self, attempt: Attempt) -> None:
        directive = attempt.directive
        acks_first = self.fault not in ("never-acks", "acks-after-result")
        if acks_first:
            status, answer = self.send("ACK", directive, {"status": "ACKED"})
            if status != 200 and not (status == 409 and self.fault == "ignores-stale-ack"):
                return
            if answer.get("cancel_requested"):
                attempt.stopped = "CANCELLED"
        if self.fault != "no-heartbeats":
            threading.Thread(target=self.beat, args=(attempt,), daemon=True).start()
        fields = self.result_of(attempt)
        if fields is not None:
            self.report(directive, fields)
        if self.fault == "acks-after-result":
            self.send("ACK", directive, {})

    def beat(self, attempt: Attempt) -> None:
        third = float(attempt.directive["lease_seconds"]) / 3
        while not attempt.ended.wait(third) and not attempt.stopped:
            progress = 50 if self.fault == "percent-progress" else 0.5
            status, answer = self.send("HEARTBEAT", attempt.directive, {"progress": progress, "note": "counting"})
            if status == 409 and self.fault != "ignores-stale-heartbeat":
                attempt.stopped = "STALE"
            elif answer.get("cancel_requested") or (status != 200 and self.fault == "heartbeat-fatal"):
                attempt.stopped = "CANCELLED"

    def result_of(self, attempt: Attempt) -> dict[str, Any] | None:
        """What the RESULT says beside the ids, or nothing where none is to be sent."""
        try:
            return {"status": "SUCCEEDED", "artifacts": self.work(attempt)}
        except Stopped as stopped:
            if str(stopped) == "STALE" or self.fault == "silent-after-cancel":
                return None
            return self.failed("CANCELLED", "the job was cancelled", "NON_RETRYABLE")
        except FileNotFoundError as error:
            if self.fault == "silent-on-bad-input":
                return None
            if self.fault == "succeeds-on-bad-input":
                return {"status": "SUCCEEDED", "artifacts": {}}
            return self.failed("INPUT_NOT_FOUND", str(error), "NON_RETRYABLE")

    def failed(self, code: str, message: str, failure_class: str) -> dict[str, Any]:
        fields = {"status": "FAILED", "failure_class": failure_class, "error": {"code": code, "message": message}}
        if self.fault == "no-failure-class":
            del fields["failure_class"]
        return fields

    def work(self, attempt: Attempt) -> dict[str, Any]:
        directive = attempt.directive
        text = path_of(directive["input_ref"]).read_text("utf-8")
        drawn_out = 0.0 if self.is_rushed else float(directive["contract_test"]["work_seconds"])
        until = time.monotonic() + max(drawn_out, float(directive["payload"].get("seconds", 0)))
        while time.monotonic() < until:
            attempt.look()
            time.sleep(0.03)
        attempt.look()
        folder = path_of(directive["workspace_ref"])
        if self.fault == "keeps-percent":
            folder = Path(urlsplit(directive["workspace_ref"]).path)
        target = (folder.parent / "shared" if self.fault == "writes-outside" else folder) / "count" / "output.json"
        write(target, json.dumps({"words": len(text.split()), "lines": text.count("\n")}))
        is_published = directive["last_step"] or self.fault == WRITES_ALWAYS
        if is_published and self.fault != "writes-no-output":
            attempt.look()
            shutil.copyfile(target, path_of(directive["output_ref"]))
        return {"output_ref": target.as_uri(), "words": len(text.split())}

    def was_noted(self, directive: dict[str, Any]) -> bool:
        note = self.state / f"{directive['lease_id']}.seen"
        was_there = note.exists()
        note.touch()
        return was_there

    # --- RESULTs that outlive the process ----------------------------------------------------------------------------

    def report(self, directive: dict[str, Any], fields: dict[str, Any]) -> None:
        kept = self.state / f"{directive['jobId']}-{directive['attempt_no']}.json"
        if self.fault != "forgets-result":
            write(kept, json.dumps([directive, fields]))
        status, answer = self.send("RESULT", directive, fields)
        if status in (413, 422) and fields["status"] == "SUCCEEDED":
            refused = self.failed("RESULT_REFUSED", str(answer.get("detail")), "NON_RETRYABLE")
            self.send("RESULT", directive, refused)
        kept.unlink(missing_ok=True)

    def send_left_over(self) -> None:
        for kept in sorted(self.state.glob("*.json")):
            directive, fields = json.loads(kept.read_text("utf-8"))
            threading.Thread(target=self.report, args=(directive, fields), daemon=True).start()


def path_of(ref: Any) -> Path:
    return Path(unquote(urlsplit(ref["uri"] if isinstance(ref, dict) else ref).path))


def write(path: Path, content: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{threading.get_ident()}")
    partial.write_text(content, "utf-8")
    partial.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["", *FAULTS, WRITES_ALWAYS], default="")
    parser.add_argument("--rush", action="store_true")
    options = parser.parse_args()
    worker = Worker(options.fault, options.rush)
    is_deaf = worker.fault == "ignores-sigterm"
    signal.signal(signal.SIGTERM, signal.SIG_IGN if is_deaf else lambda *_: worker.stopping.set())
    return worker.run()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
