"""`lucius load` on a server as it comes: nothing is set, and its own reference services do the work."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.processes import LUCIUS, Process, environment, free_port, run_lucius

TYPES = ("OCR_EMBEDDING_SIS", "EMBEDDING", "SIS")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """`lucius up` in a folder of its own, and that folder."""
    folder = tmp_path_factory.mktemp("stock")
    settings = {"LUCIUS_API_KEY": "", "LUCIUS_MANAGEMENT_PORT": "0", "LUCIUS_DATA": str(folder / ".lucius")}
    with Process("up", settings=settings, folder=folder, port=free_port()) as server:
        yield f"http://127.0.0.1:{server.port}", folder


def load(url: tuple[str, Path], *words: str) -> dict[str, Any]:
    settings = environment({"LUCIUS_API_KEY": "", "LUCIUS_URL": url[0]})
    command = [LUCIUS, "load", *words, "--output", "json"]
    ran = subprocess.run(command, cwd=url[1], env=settings, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert isinstance(told, dict)
    return told


@pytest.mark.parametrize("request_type", TYPES)
def test_every_shipped_protocol_succeeds_on_a_stock_server(url: tuple[str, Path], request_type: str) -> None:
    told = load(url, "--request-type", request_type, "--jobs", "6", "--tenants", "2")
    assert told["jobs"]["ended"] == {"SUCCEEDED": 6}


def test_a_server_whose_files_are_elsewhere_is_loaded_with_a_note(url: tuple[str, Path], tmp_path: Path) -> None:
    key = (url[1] / ".lucius" / "api-key").read_text().strip()
    settings = {"LUCIUS_URL": url[0], "LUCIUS_API_KEY": key, "LUCIUS_DATA": str(tmp_path)}
    ended = run_lucius("load", "--jobs", "1", settings=settings)
    assert ended.returncode == 0, ended.stderr
    assert f"does not accept files in {tmp_path}/files" in ended.stderr
    assert "LUCIUS_DATA" in ended.stderr
