"""The page that leads from the image to a running cluster: its values and its command, run with the variables that the
chart renders for them, as processes of this machine."""

from __future__ import annotations

import asyncio
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from tests.crash.processes import API_KEY, CALLBACK_KEYS, LUCIUS, Process, environment, free_port
from tests.deploy.chart import CHART, ROOT, Object, helm, named, pods, variables
from tests.long_form import IS_LONG

from lucius.registries.files import FileRegistry

PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
JOBS = 20


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def render(folder: Path, *texts: str) -> list[Object]:
    files = []
    for place, text in enumerate(texts):
        path = folder / f"values-{place}.yaml"
        path.write_text(text)
        files += ["-f", path]
    ran = helm("template", "lucius", CHART, *files)
    assert ran.returncode == 0, ran.stderr
    return [one for one in yaml.safe_load_all(ran.stdout) if one]


def mount_registry(objects: list[Object], folder: Path) -> None:
    """The files of the ConfigMap as the kubelet mounts and replaces them: in a new folder, to which one link leads."""
    data = named(objects, "ConfigMap", "lucius-registry")["data"]
    volumes = dict(pods(objects))["lucius-orchestrator"]["volumes"]
    (items,) = [one["configMap"]["items"] for one in volumes if "configMap" in one]
    folder.mkdir(exist_ok=True)
    version = f"..{len(list(folder.iterdir()))}"
    for item in items:
        path = folder / version / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data[item["key"]])
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").replace(folder / "..data")
    for name in {Path(item["path"]).parts[0] for item in items}:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)


def test_values_of_the_page_are_accepted(tmp_path: Path) -> None:
    first, *others = blocks("yaml")
    assert len(others) == 2
    objects = render(tmp_path, first, *others)
    assert named(objects, "Deployment", "lucius-service-ocr")
    assert named(objects, "Ingress", "lucius-orchestrator")
    mount_registry(objects, tmp_path / "registry")
    registry = FileRegistry(tmp_path / "registry")
    assert set(registry.snapshot().tenants) == {"acme"}
    assert set(registry.snapshot().protocols) == {"LETTERS"}


def test_changed_file_of_the_registry_reaches_running_pods(tmp_path: Path) -> None:
    before = render(tmp_path, blocks("yaml")[0])
    mount_registry(before, tmp_path / "registry")
    registry = FileRegistry(tmp_path / "registry")
    other = "registry: {files: {tenants/acme.yaml: 'id: umbra'}}"
    after = render(tmp_path, blocks("yaml")[0], other)
    assert pods(after) == pods(before), "no pod is replaced for it"
    mount_registry(after, tmp_path / "registry")
    assert registry.reload()
    assert set(registry.snapshot().tenants) == {"umbra"}


class TestGuide:
    __test__ = IS_LONG

    async def test_twenty_jobs_succeed(self, tmp_path: Path, postgres_url: str) -> None:
        objects = render(tmp_path, blocks("yaml")[0])
        mount_registry(objects, tmp_path / "registry")
        (tmp_path / "command.json").write_text(blocks("json")[0])
        port = free_port()
        with ExitStack() as stack:
            for name, pod in pods(objects):
                self.run(stack, name, pod["containers"][0], tmp_path, postgres_url, port)
            command = re.findall(r"^lucius (load .*)$", PAGE, re.MULTILINE)[0].split()
            ran = await asyncio.to_thread(
                subprocess.run,
                [LUCIUS, *command], cwd=tmp_path, env=environment({"LUCIUS_URL": f"http://127.0.0.1:{port}"}),
                capture_output=True, text=True, timeout=120,
            )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert f"{JOBS} SUCCEEDED" in ran.stdout

    def run(self, stack: ExitStack, name: str, container: Any, folder: Path, ledger: str, port: int) -> None:
        """A container's command, with its variables; only addresses and folders are this machine's."""
        secret = {"LUCIUS_LEDGER": ledger, "LUCIUS_CALLBACK_KEYS": CALLBACK_KEYS, "LUCIUS_API_KEY": API_KEY}
        given = variables(container)
        settings = {key: secret[key] if value is None else value for key, value in given.items()}
        here = {"LUCIUS_DATA": str(folder / name), "LUCIUS_REGISTRY": str(folder / "registry")}
        if name == "lucius-migration":
            command = [LUCIUS, *container["args"]]
            subprocess.run(command, env=environment(settings | here), check=True, timeout=60)
            return
        here |= {"LUCIUS_MANAGEMENT_PORT": "auto", "LUCIUS_HOST": "127.0.0.1", "LUCIUS_MANAGEMENT_HOST": "127.0.0.1"}
        own = port if name == "lucius-orchestrator" else None
        process = Process(*container["args"], settings=settings | here, folder=folder / name, port=own)
        stack.enter_context(process)
