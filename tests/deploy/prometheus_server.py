"""A real Prometheus: Debian's package, unpacked without installing it and without root."""

from __future__ import annotations

import fcntl
import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from tests.crash.processes import free_port

INSTALL_SECONDS_MAX = 300
START_SECONDS_MAX = 60.0
STEP_SECONDS = 1


def install(cache: Path) -> Path:
    """The folder of `prometheus` and `promtool`, from an earlier run if there was one."""
    programs = cache / "unpacked" / "usr" / "bin"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (programs / "prometheus").exists():
            for folder in ("lists/partial", "cache/archives/partial"):
                (cache / folder).mkdir(parents=True, exist_ok=True)
            # Lists of packages of its own: the system's may be missing, and are root's.
            apt = [
                "apt-get",
                "-qq",
                "-o",
                f"Dir::State::lists={cache / 'lists'}",
                "-o",
                f"Dir::Cache={cache / 'cache'}",
            ]
            _run([*apt, "update"], cache)
            _run([*apt, "download", "prometheus"], cache)
            package = next(cache.glob("prometheus_*.deb"))
            _run(["dpkg-deb", "--extract", str(package), str(cache / "unpacked")], cache)
    return programs


def _run(command: list[str], folder: Path) -> None:
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    except FileNotFoundError as error:
        raise AssertionError(f"{command[0]} is missing: this test takes Prometheus from Debian's packages") from error
    assert ran.returncode == 0, f"{command}:\n{ran.stdout}{ran.stderr}"


class Prometheus:
    def __init__(self, programs: Path, folder: Path, targets: Mapping[str, int], rules: Path) -> None:
        """`targets`: management ports by name of the process."""
        self._programs = programs
        self._folder = folder
        self._port = free_port()
        self._started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        scraped = [{"targets": [f"127.0.0.1:{port}"], "labels": {"part": name}} for name, port in targets.items()]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "lucius", "static_configs": scraped}],
        }
        self._config = folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(config))

    def __enter__(self) -> Prometheus:
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "prometheus", f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._started_at = time.time()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready():
            assert time.monotonic() < deadline, (self._folder / "prometheus.log").read_text()[-3000:]
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)

    def series(self, expression: str) -> list[dict[str, Any]]:
        """What a panel shows for an expression, over the time since the start."""
        span = {"start": self._started_at, "end": time.time(), "step": STEP_SECONDS}
        found: list[dict[str, Any]] = self._get("query_range", query=expression, **span)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **query: str | float) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False
