"""The page for Python programs, run word by word beside a server that is started as the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, blocks, read
from tests.crash.processes import Process, environment, free_port

import lucius.client
from lucius.client import AsyncClient, Client
from lucius.client.methods import Awaiting, Blocking

PAGE = read(DOCS / "how-to" / "use-from-python.md")
URL = "http://127.0.0.1:8000"


@pytest.mark.timeout(300)
def test_the_page_works_word_by_word(tmp_path: Path) -> None:
    found = blocks(PAGE)
    assert [text for kind, text in found if kind == "bash"] == ["lucius up\n"]
    script = "".join(text for kind, text in found if kind == "python")
    shown = "".join(text for kind, text in found if kind == "text")
    assert script.count(URL) == script.count('Client("') > 5
    settings = {"LUCIUS_LOG_LEVEL": "WARNING", "LUCIUS_API_KEY": ""}
    words = ("up", "--data", str(tmp_path / ".lucius"))
    with Process(*words, settings=settings, folder=tmp_path, port=free_port()) as server:
        code = script.replace(URL, f"http://127.0.0.1:{server.port}")
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=tmp_path, env=environment(settings), capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == shown


def methods_of(client: type) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_") and name != "close"}


def test_every_method_and_error_is_on_the_page() -> None:
    names = methods_of(Client) | methods_of(lucius.client.client.Runbooks) | methods_of(lucius.client.client.Batches)
    for name in names | methods_of(lucius.client.client.Admin):
        assert re.search(rf"`{name}[`(]", PAGE), name
    raised = [name for name in lucius.client.__all__ if _is_error(name) and name != "AddressInvalid"]
    assert len(raised) > 10
    for name in raised:
        assert f"`{name}`" in PAGE, name


def _is_error(name: str) -> bool:
    found = getattr(lucius.client, name)
    return isinstance(found, type) and issubclass(found, Exception)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    import inspect

    from lucius.client import async_client, client

    pairs: list[tuple[type, type]] = [
        (Client, AsyncClient),
        (client.Runbooks, async_client.AsyncRunbooks),
        (client.Batches, async_client.AsyncBatches),
        (client.Admin, async_client.AsyncAdmin),
    ]
    for blocking, awaiting in pairs:
        assert issubclass(blocking, Blocking)
        assert issubclass(awaiting, Awaiting)
        assert methods_of(blocking) == methods_of(awaiting)
        for name in methods_of(blocking):
            one, other = (inspect.signature(getattr(kind, name)).parameters for kind in (blocking, awaiting))
            assert [(p.name, p.default) for p in one.values()] == [(p.name, p.default) for p in other.values()], name
            assert getattr(blocking, name).__doc__ == getattr(awaiting, name).__doc__, name
