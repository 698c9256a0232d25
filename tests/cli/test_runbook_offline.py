"""Commands of runbooks without a LUCIUS server: files, faults on their lines, the base install, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lucius.cli.main import cli
from lucius.cli.serve.server import SERVER_PACKAGES

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


def lucius(*arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(cli, list(arguments), **options)


def example() -> str:
    return resources.files("lucius.samples.mailbox").joinpath("runbook.yaml").read_text("utf-8")


def test_the_example_is_valid_and_its_phases_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "runbook.yaml"
    path.write_text(example(), "utf-8")
    ended = lucius("runbook", "validate", str(path))
    assert ended.exit_code == 0, ended.output
    assert "  T-5d  announce: tell-user, look-up" in ended.stdout
    assert "  T+1d  clean-up: tell-done" in ended.stdout
    told = json.loads(lucius("runbook", "validate", "-", "--output", "json", input=example()).stdout)
    assert (told["valid"], told["name"], told["faults"]) == (True, "sample-mailbox-migration", [])


def test_every_fault_is_shown_as_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    lines = example().splitlines()
    offset = next(place for place, line in enumerate(lines) if "offset: T-1d" in line)
    poll = next(place for place, line in enumerate(lines) if "timeout: 24h" in line)
    lines[offset] = lines[offset].replace("T-1d", "T-1x")
    lines[poll] = lines[poll].replace("24h", "24 hours")
    path.write_text("\n".join(lines), "utf-8")
    ended = lucius("runbook", "validate", str(path))
    assert ended.exit_code == 3
    shown = ended.stdout.splitlines()
    assert shown[0].startswith(f"{path}:{offset + 1}: phase prepare / offset: ")
    assert shown[1].startswith(f"{path}:{poll + 1}: ")
    assert len(shown) == 2
    assert "has 2 faults." in ended.stderr
    told = lucius("runbook", "validate", str(path), "-o", "json")
    assert (told.exit_code, len(json.loads(told.stdout)["faults"])) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("runbook", "validate", "not-there.yaml"), "does not exist"),
        (("batch", "create", "x", "--csv", "latin.csv"), "latin.csv:2: not UTF-8"),
        (("batch", "create", "x", "--csv", "members.csv", "--start", "tomorrow"), "is not a time such as"),
        (
            ("batch", "create", "x", "--csv", "members.csv", "--start", "0001-01-01T00:00+23:59"),
            "is not a time such as",
        ),
        (("batch", "create", "x", "--csv", "members.csv", "--start", "1969-12-31"), "is outside the years"),
        (("batch", "show", "first"), "not a valid integer"),
        (("runbook", "worker", "nothing.there"), "neither a file nor a module"),
        (("runbook", "worker", "missing.py"), "missing.py is not a file"),
        (("runbook", "worker", "empty.py"), "has no lucius.functions.FunctionWorker named worker"),
        (("runbook", "worker", "fine.py", "--worker-id", "a b"), "is not a worker id"),
    ],
)
def test_what_cannot_be_used_is_refused_with_code_2(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "latin.csv").write_bytes(b"Key\n\xe9\n")
    (tmp_path / "members.csv").write_text("Key\na\n")
    (tmp_path / "empty.py").write_text("worker = None\n")
    (tmp_path / "fine.py").write_text("from lucius.functions import FunctionWorker\nworker = FunctionWorker('w')\n")
    ended = lucius(*arguments)
    assert ended.exit_code == 2, ended.output
    assert told in " ".join(ended.stderr.split())


def test_a_module_with_a_broken_import_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "broken_worker.py").write_text("import not_installed_anywhere\n")
    ended = lucius("runbook", "worker", "broken_worker")
    assert isinstance(ended.exception, ModuleNotFoundError)
    assert ended.exception.name == "not_installed_anywhere"


def test_the_schema_is_a_json_schema() -> None:
    schema = json.loads(lucius("runbook", "schema").stdout)
    assert schema["title"] == "LUCIUS runbook"


def test_sample_without_a_server_says_in_a_line_how_to_get_one() -> None:
    ended = lucius("--url", "http://127.0.0.1:9", "runbook", "sample")
    assert ended.exit_code == 4
    assert len(ended.stderr.splitlines()) == 1
    for part in ("http://127.0.0.1:9", "`make run`", "--up"):
        assert part in ended.stderr


@pytest.mark.parametrize("role", ["scheduler", "runbooks"])
def test_roles_of_runbooks_need_a_shared_ledger(tmp_path: Path, role: str) -> None:
    ended = lucius(role, "--data", str(tmp_path))
    assert ended.exit_code == 2, ended.output
    assert f"'lucius {role}' needs a shared ledger" in ended.stderr
    assert "'lucius up' has its own" in ended.stderr


def test_publishing_a_bad_runbook_shows_the_lines_that_the_server_names(scripted: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\n")
    problem = {"code": "RUNBOOK_INVALID", "detail": "1 fault", "errors": []}
    scripted.on("POST /v1/runbooks", problem, status=422)
    faults = [{"line": 1, "pointer": "/phases", "message": "phases: missing; add it"}]
    scripted.on("POST /v1/runbooks:validate", {"valid": False, "faults": faults, "phases": []})
    ended = scripted.lucius("runbook", "publish", str(path))
    assert ended.exit_code == 3
    assert ended.stdout == f"{path}:1: phases: missing; add it\n"
    scripted.on("POST /v1/runbooks/x:retire", {"code": "NOT_FOUND", "detail": "there is no runbook x"}, status=404)
    ended = scripted.lucius("runbook", "retire", "x", "--yes")
    assert (ended.exit_code, "NOT_FOUND: there is no runbook x" in ended.stderr) == (3, True)


def run_without(missing: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(missing=missing)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


BATCH = {"batch_id": 1, "status": "completed", "runbook": "x", "version": 1, "phase_list": [], "waiting_for": []}


@pytest.mark.parametrize(
    "command",
    [("runbook", "list"), ("batch", "watch", "1"), ("batch", "grid", "1"), ("batch", "why", "1"), ("batch", "--help")],
)
def test_client_commands_run_on_the_base_install(scripted: Any, command: tuple[str, ...]) -> None:
    scripted.on("GET /v1/runbooks", {"items": [], "next": None})
    scripted.on("GET /v1/batches/1", BATCH)
    scripted.on("GET /v1/batches/1/events", {"items": [], "next": None})
    scripted.on("GET /v1/batches/1/members", {"items": [], "next": None})
    ended = run_without({*SERVER_PACKAGES, "lucius.domain", "pydantic"}, "--url", scripted.url, *command)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("command", [("validate", "r.yaml"), ("schema",), ("sample", "--up")])
def test_commands_that_need_the_server_say_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "r.yaml").write_text("name: x\n")
    ended = run_without(set(SERVER_PACKAGES), "runbook", *command)
    assert ended.returncode == 2, ended.stderr
    assert "this needs the server's packages: pip install '.[server]' in a clone of LUCIUS" in ended.stderr
    assert "Traceback" not in ended.stderr
