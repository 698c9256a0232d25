"""An `output_ref` that the kit cannot write fails the step, instead of a success without a result."""

from __future__ import annotations

from typing import Any

import pytest
from tests.platform.played import PlayedOrchestrator, serve_until, service_of, settings_for

from lucius.platform import Directive, Result, Workspace

REF = "s3://results/answer.json"


def writing(directive: Directive, workspace: Workspace) -> Result:
    return Result({"done": True}, output=workspace.write("out.txt", "whole"))


def writing_itself(directive: Directive, workspace: Workspace) -> dict[str, Any]:
    """A service with a client of its own for such refs returns no `output`."""
    return {"done": True}


async def result_of(played: PlayedOrchestrator, function: Any, **fields: Any) -> dict[str, Any]:
    played.send(played.directive(1, **fields))
    await serve_until(service_of(function), settings_for(played), played.results)
    return dict(played.results()[0])


@pytest.mark.parametrize("ref", [REF, {"uri": REF}])
async def test_output_that_the_kit_cannot_write_fails_the_last_step(played: PlayedOrchestrator, ref: Any) -> None:
    result = await result_of(played, writing, output_ref=ref)
    assert (result["status"], result["failure_class"]) == ("FAILED", "NON_RETRYABLE")
    assert result["error"]["code"] == "REF_SCHEME_UNSUPPORTED"
    told = f"the output_ref {REF} has the scheme 's3'; this service writes file:// and blob://"
    assert result["error"]["message"] == told


async def test_output_of_another_step_is_not_published(played: PlayedOrchestrator) -> None:
    assert (await result_of(played, writing, output_ref=REF, last_step=False))["status"] == "SUCCEEDED"


async def test_service_that_writes_the_output_itself_succeeds(played: PlayedOrchestrator) -> None:
    assert (await result_of(played, writing_itself, output_ref=REF))["status"] == "SUCCEEDED"
