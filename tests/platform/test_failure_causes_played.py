"""A failure tells its cause: where it was raised, which instance ran it, and the whole ref that was not found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.platform.played import PlayedOrchestrator, serve_until, service_of, settings_for

from lucius.platform import Directive, NonRetryable, Workspace
from lucius.platform.frames import FRAMES_MAX, last_frames


def deeper(levels: int) -> None:
    if levels:
        deeper(levels - 1)
    else:
        json.loads("{not json")


def broken(directive: Directive, workspace: Workspace) -> None:
    deeper(2)


async def broken_awaited(directive: Directive, workspace: Workspace) -> None:
    deeper(2)


def refusing(directive: Directive, workspace: Workspace) -> None:
    raise NonRetryable("BAD", "no")


async def failure(played: PlayedOrchestrator, function: Any, **settings: Any) -> dict[str, Any]:
    played.send(played.directive(1))
    await serve_until(service_of(function), settings_for(played, **settings), played.results)
    return dict(played.results()[0]["error"])


@pytest.mark.parametrize("function", [broken, broken_awaited])
async def test_exception_is_reported_with_its_last_frames_and_the_instance(
    played: PlayedOrchestrator, function: Any
) -> None:
    error = await failure(played, function)
    frames = error["frames"]
    assert [frame["function"] for frame in frames[:4]] == [function.__name__, "deeper", "deeper", "deeper"]
    assert frames[0]["file"] == "tests/platform/test_failure_causes_played.py"
    assert frames[0]["line"] == function.__code__.co_firstlineno + 1
    assert (frames[-1]["file"], frames[-1]["function"]) == ("json/decoder.py", "raw_decode")
    assert error["instance"] == played.of_kind("ACK")[0].body["acked_by"]


async def test_failure_that_a_function_raises_itself_has_its_frame_too(played: PlayedOrchestrator) -> None:
    error = await failure(played, refusing)
    assert [frame["function"] for frame in error["frames"]] == ["refusing"]


async def test_frames_can_be_turned_off(played: PlayedOrchestrator) -> None:
    error = await failure(played, broken, error_frames=False)
    assert "frames" not in error
    assert error["instance"]


def test_frames_are_few_and_begin_with_the_step_function() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        deeper(50)
    frames = last_frames(caught.value)
    assert len(frames) == FRAMES_MAX
    assert frames[0]["function"].startswith("test_frames_are_few")
    assert frames[-1]["function"] == "raw_decode"
    assert all(not frame["file"].startswith("/") for frame in frames)


async def test_input_that_does_not_exist_is_named_in_full(played: PlayedOrchestrator) -> None:
    ref = (played.files / "in box" / Path("x" * 200) / "none.pdf").as_uri()
    played.send(played.directive(1, input_ref={"uri": ref}))

    def read(directive: Directive, workspace: Workspace) -> None:
        workspace.read_input()

    await serve_until(service_of(read), settings_for(played), played.results)
    error = played.results()[0]["error"]
    assert (error["code"], error["message"]) == ("INPUT_NOT_FOUND", f"the input_ref {ref} does not exist")
