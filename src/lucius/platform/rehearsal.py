"""Runs one step in place, without an orchestrator: for a service's own tests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucius.platform.attempt import Attempt
from lucius.platform.directive import Directive
from lucius.platform.file_roots import FileRoot, FileRoots
from lucius.platform.steps import StepRunner

if TYPE_CHECKING:
    from lucius.platform.service import PlatformService


@dataclass(frozen=True)
class Rehearsed:
    result: dict[str, Any]
    """The body of the RESULT, as sent to the orchestrator."""
    folder: Path
    """The attempt's workspace folder."""
    output: Path
    """Where the command's `output_ref` points."""


def rehearse(
    service: PlatformService,
    step_type: str,
    folder: Path,
    *,
    input: Path | str | None = None,
    payload: Mapping[str, Any] | None = None,
    previous: Mapping[str, Any] | None = None,
) -> Rehearsed:
    """Run a step as the service would, in `folder`. `input` is a file, or text to write to one."""
    if step_type not in service.steps:
        known = ", ".join(sorted(service.steps)) or "none"
        raise ValueError(f"the service {service.name} has no step {step_type}; it has {known}")
    folder = folder.resolve()
    if isinstance(input, str):
        source = folder / "input.txt"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(input, "utf-8")
    else:
        source = (input or folder / "no-input").resolve()
    job_id = str(uuid.uuid4())
    workspace, output = folder / "workspace" / "rehearsal" / job_id / step_type / "1", folder / "output"
    directive = Directive(
        job_id=job_id,
        tenant_id="rehearsal",
        step_id=step_type.lower(),
        step_type=step_type,
        service=service.name,
        attempt_no=1,
        lease_id=str(uuid.uuid4()),
        lease_seconds=60.0,
        workspace_ref=workspace.as_uri() + "/",
        input_ref=source.as_uri(),
        output_ref=output.as_uri(),
        payload=dict(payload or {}),
        previous=dict(previous or {}),
    )
    files = FileRoots((FileRoot(folder, shared=True), FileRoot(source.parent, shared=True, readonly=True)))
    result = asyncio.run(_run(service, Attempt(directive, files)))
    return Rehearsed(result, workspace, output)


async def _run(service: PlatformService, attempt: Attempt) -> dict[str, Any]:
    runner = StepRunner()
    try:
        result = await runner.start(service.steps[attempt.directive.step_type], attempt)
    finally:
        runner.close()
    assert result is not None, "the attempt is never stopped"
    return result
