"""The first start makes keys for itself: one each, whole, whoever starts beside it or dies on the way."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.crash.processes import QUICK, Process, free_port

from lucius.local_secrets import with_secrets
from lucius.settings import Settings


async def test_starts_at_the_same_moment_agree_on_their_keys(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path))
    made = await asyncio.gather(*(asyncio.to_thread(with_secrets, settings) for _ in range(16)))
    assert len({(one.api_key, one.callback_keys) for one in made}) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["api-key", "callback-key"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_start_that_dies_while_it_makes_a_key_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data=str(tmp_path))

    def die(descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            with_secrets(settings)
    assert list(tmp_path.iterdir()) == []
    assert with_secrets(settings).api_key


def test_start_that_is_killed_is_no_hindrance_to_the_next(tmp_path: Path) -> None:
    words = ("up", "--no-services", "--data", str(tmp_path / "data"))
    server = Process(*words, settings=QUICK, folder=tmp_path, port=free_port())
    with server:
        server.kill()
        server.start()
        server.wait_ready()
