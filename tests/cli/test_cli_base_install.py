"""The base install: client commands need nothing of the server, and commands of the server say what they need."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lucius.cli.failures import Unusable
from lucius.cli.serve.server import SERVER_PACKAGES, server_packages

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {"pyjwt": "jwt", "pyyaml": "yaml", "jsonschema-rs": "jsonschema_rs"}

WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r} or name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
from lucius.cli.main import main
main()
"""


def run_without(missing: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lucius` in a process of its own, where these modules are not installed."""
    code = WITHOUT.format(missing=missing)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_every_package_of_the_extra_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [one.partition(">")[0].partition("[")[0] for one in project["optional-dependencies"]["server"]]
    assert len(named) > 5
    assert {IMPORTED_AS.get(name, name) for name in named} <= SERVER_PACKAGES


@pytest.mark.parametrize(
    "command",
    [("up",), ("api",), ("reconciler",), ("db", "verify"), ("prune", "--offline", "--yes", "--older-than", "1d")],
)
def test_commands_of_the_server_name_the_extra_that_is_missing(command: tuple[str, ...]) -> None:
    ended = run_without(set(SERVER_PACKAGES), *command)
    assert ended.returncode == 2, ended.stderr
    assert "this needs the server's packages: pip install '.[server]' in a clone of LUCIUS" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_one_missing_package_deep_inside_is_named() -> None:
    ended = run_without({"apsw"}, "db", "verify")
    assert ended.returncode == 2, ended.stderr
    assert "pip install '.[server]' in a clone of LUCIUS (apsw is not installed)" in ended.stderr


def test_defect_inside_lucius_is_not_taken_for_a_missing_package() -> None:
    ended = run_without({"lucius.roles"}, "db", "verify")
    assert ended.returncode == 1
    assert "ImportError: " in ended.stderr
    assert "pip install" not in ended.stderr


def test_only_a_package_that_is_not_there_counts_as_missing() -> None:
    with pytest.raises(Unusable), server_packages():
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
    with pytest.raises(ImportError, match="cannot import name"), server_packages():
        raise ImportError("cannot import name 'nonsense' from 'yaml'", name="yaml")
    with pytest.raises(ModuleNotFoundError), server_packages():
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")


@pytest.mark.parametrize(
    "command",
    [("get", "j1"), ("why", "j1"), ("watch", "j1"), ("list",), ("events", "j1"), ("protocols",), ("lanes",),
     ("tenants",), ("dead-letters",), ("--help",), ("up", "--help")],
)  # fmt: skip
def test_client_commands_run_on_the_base_install(scripted: Any, command: tuple[str, ...]) -> None:
    job = {"jobId": "j1", "status": "SUCCEEDED", "steps": [{"stepId": "ocr", "status": "SUCCEEDED"}]}
    scripted.on("GET /v1/jobs/j1", job)
    scripted.on("GET /v1/jobs/j1/steps", {"steps": job["steps"]})
    scripted.on("GET /v1/jobs/j1/events", {"events": [{"at": "2026-01-31T08:15:30Z", "type": "ACCEPTED"}]})
    scripted.on("GET /v1/jobs", {"items": [job], "next": None})
    for name in ("protocols", "admin/lanes", "admin/tenants", "admin/dead-letters"):
        scripted.on(f"GET /v1/{name}", {"items": [], "next": None})
    ended = run_without({*SERVER_PACKAGES, "lucius.domain", "pydantic"}, "--url", scripted.url, *command)
    assert ended.returncode == 0, ended.stderr
