"""The chart as Helm renders it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "lucius"
HELM = Path(sys.executable).parent / "helm"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
Object = dict[str, Any]


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *words], capture_output=True, text=True, timeout=60, check=False)


@cache
def rendered(values: Path) -> list[Object]:
    ran = helm("template", "lucius", CHART, "-f", values)
    assert ran.returncode == 0, ran.stderr
    return [one for one in yaml.safe_load_all(ran.stdout) if one]


def named(objects: list[Object], kind: str, name: str) -> Object:
    found = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{kind} {name}: {len(found)} of {[(o['kind'], o['metadata']['name']) for o in objects]}"
    return found[0]


def pods(objects: list[Object]) -> list[tuple[str, Object]]:
    """The name and the pod's spec of everything that runs."""
    kinds = ("Deployment", "StatefulSet", "Job")
    return [(one["metadata"]["name"], one["spec"]["template"]["spec"]) for one in objects if one["kind"] in kinds]


def variables(container: Object) -> dict[str, str | None]:
    """A variable that comes from a Secret is None."""
    return {one["name"]: one.get("value") for one in container["env"]}
