from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.functions.played_server import PlayedServer


@pytest.fixture
def played() -> Iterator[PlayedServer]:
    with PlayedServer() as server:
        yield server
