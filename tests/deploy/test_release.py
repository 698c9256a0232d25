"""What a release is made of: one version everywhere, wheel, source distribution, SBOM and notes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from tests.crash.processes import environment
from tests.deploy.chart import CHART, ROOT
from tests.deploy.generators import load_generator

from lucius import __version__
from lucius.build_info import extras
from lucius.console import vendor


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    own = Path(sys.executable).parents[1]
    settings = environment({"UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "1"})
    command = ["make", "--no-print-directory", "release", f"DIST={folder}", f"VENV={own}"]
    ran = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def test_version_is_the_same_everywhere() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    dockerfile = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
    assert re.findall(r"^ARG VERSION=(.*)$", dockerfile, re.MULTILINE) == [__version__]


def test_both_distributions_know_their_commit(dist: Path) -> None:
    command = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    with zipfile.ZipFile(dist / f"lucius-{__version__}-py3-none-any.whl") as wheel:
        assert wheel.read("lucius/commit.txt").decode() == commit
    with tarfile.open(dist / f"lucius-{__version__}.tar.gz") as source:
        file = source.extractfile(f"lucius-{__version__}/src/lucius/commit.txt")
        assert file is not None
        assert file.read().decode() == commit
        names = source.getnames()
    assert any(name.endswith("/console/static/vendor/htmx.min.js") for name in names)


def test_wheel_carries_the_pinned_files_of_the_console_and_their_licence(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"lucius-{__version__}-py3-none-any.whl") as wheel:
        carried = {name: wheel.read(f"lucius/console/static/vendor/{name}") for name in vendor.PINNED["files"]}
    pinned = {name: one["sha256"] for name, one in vendor.PINNED["files"].items()}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in carried.items()} == pinned
    (licence,) = [content for name, content in carried.items() if "LICENSE" in name]
    assert b"Permission to use, copy, modify, and/or distribute" in licence


def test_sbom_lists_every_locked_requirement(dist: Path) -> None:
    listed = json.loads((dist / "lucius.cdx.json").read_text())
    found = {(one["name"].lower(), one["version"]) for one in listed["components"]}
    text = (ROOT / "requirements" / "runtime.txt").read_text("utf-8")
    locked = {(name.lower(), version) for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE)}
    assert found == locked
    assert listed["metadata"]["component"]["name"] == "lucius"


def test_notes_are_the_newest_section_of_the_changelog(dist: Path) -> None:
    notes = (dist / "release-notes.md").read_text("utf-8")
    assert notes.startswith("This will be")
    assert "\n## [" not in notes
    generator = load_generator(ROOT / "deploy" / "release_notes.py")
    assert generator.newest("# C\n\n## [2]\n\nnew\n\n## [1]\n\nold\n") == "new\n"
    with pytest.raises(ValueError, match="no section"):
        generator.newest("# C\n")


def test_every_extra_is_known() -> None:
    assert {"server", "postgres", "azure"} <= set(extras())
    assert all(extras().values()), "the development environment has them all"
