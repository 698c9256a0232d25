"""LUCIUS is installed from a clone or from its own wheel, never by a name from a registry that does not have it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.crash.processes import environment

from lucius import __version__, scaffold

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
ALLOWED = re.compile(
    r"""-r\ |-e\ \.|'?\.['\[\s`]|pre-commit|PATH-OF-THE-CLONE|.*lucius-[^\s'\[]*\.whl
    |"\$3/bin/python"\ --compile-bytecode\ --verify-hashes""",
    re.VERBOSE,
)
"""What may follow `pip install` and its plain options: a file of requirements, the clone, the wheel, or a tool."""


def text_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout.decode()
    found = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in found if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def run(*command: str | Path, folder: Path = ROOT) -> str:
    settings = environment({"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1"})
    ran = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def test_the_wheel_and_its_locked_requirements_work_in_an_empty_environment(tmp_path: Path) -> None:
    dist, venv = tmp_path / "dist", tmp_path / "venv"
    run("make", "--no-print-directory", "wheel", f"DIST={dist}", f"VENV={Path(sys.executable).parents[1]}")
    assert {path.name for path in dist.iterdir()} == {
        f"lucius-{__version__}-py3-none-any.whl",
        "requirements.txt",
        "requirements-base.txt",
    }
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    install = (UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python")
    run(*install, "--require-hashes", "-r", dist / "requirements-base.txt")
    run(*install, "--no-deps", dist / f"lucius-{__version__}-py3-none-any.whl")
    lucius = venv / "bin" / "lucius"
    assert "LUCIUS accepts commands" in run(lucius, "--help", folder=tmp_path)
    assert __version__ in run(lucius, "--version", folder=tmp_path)
    # What the base install promises: a service's project, and what a service imports.
    run(lucius, "new", "service", "tally", folder=tmp_path)
    run(venv / "bin" / "python", "-c", "import service, lucius.client, lucius.functions", folder=tmp_path / "tally")


def test_the_locked_base_install_is_the_base_of_the_locked_whole() -> None:
    pinned = {
        name: set(re.findall(r"^([\w.-]+==[\w.]+)", (ROOT / "requirements" / name).read_text("utf-8"), re.MULTILINE))
        for name in ("base.txt", "runtime.txt")
    }
    assert pinned["base.txt"] < pinned["runtime.txt"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.split(r"[>=\[]", one)[0] for one in project["dependencies"]}
    assert wanted <= {one.partition("==")[0] for one in pinned["base.txt"]}


def test_nothing_is_installed_by_a_name_that_no_registry_has() -> None:
    faults = []
    for path in text_files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("requirements/") or path == Path(__file__):
            continue
        text = path.read_text("utf-8", "replace")
        if not name.startswith("tests/") and re.search(r"\blucius\[\w", text):
            faults.append(f"{name} names an extra as if a registry had LUCIUS")
        for found in re.finditer(r"pip install +((?:--[a-z][\w-]* +)*)([^\n]*)", text):
            line = text.count("\n", 0, found.start()) + 1
            if name != "Makefile" and not name.startswith("tests/") and not ALLOWED.match(found[2]):
                faults.append(f"{name}:{line}: {found[0]}")
    assert not faults, "\n".join(faults)


def test_a_new_service_depends_on_no_name_that_no_registry_has() -> None:
    words = {"name": "tally", "request_type": "TALLY", "step_type": "TALLY", "version": __version__}
    made = scaffold.fill(words)
    project = tomllib.loads(made["pyproject.toml"])["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    assert not [one for one in wanted if re.match(r"lucius\b", one)]
    assert f"lucius-{__version__}-py3-none-any.whl" in made["README.md"]
