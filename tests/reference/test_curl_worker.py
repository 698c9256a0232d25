"""The worker in bash and `curl`, which the documentation shows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_curl_worker(fake: Any, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "examples" / "curl-worker.sh"), *arguments],
        env={**os.environ, "LUCIUS_URL": fake.url, "LUCIUS_API_KEY": "key", "PULLS_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_curl_worker_finishes_directives(fake: Any) -> None:
    fake.directives = [fake.directive(number, "ocr") for number in (1, 2)]
    ended = run_curl_worker(fake, "ocr", "2")
    assert ended.returncode == 0, ended.stderr
    assert [body["status"] for body in fake.of_kind("RESULT")] == ["SUCCEEDED"] * 2
    assert len(fake.of_kind("ACK")) == 2
    assert "job-2 ocr attempt 1" in ended.stdout


def test_the_curl_worker_leaves_a_stale_attempt_and_gives_up(fake: Any) -> None:
    fake.faults["ACK"] = [(409, {"code": "STALE_ATTEMPT"})]
    fake.directives = [fake.directive(1, "ocr")]
    ended = run_curl_worker(fake, "ocr", "1")
    assert ended.returncode == 1
    assert not fake.of_kind("RESULT")
    assert "gave up" in ended.stderr
