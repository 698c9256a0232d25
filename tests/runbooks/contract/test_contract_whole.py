"""Each numbered behaviour of the contract has a test that is named after it."""

from __future__ import annotations

from pathlib import Path

import pytest

NUMBERED = {
    "batch_init": "1 2 2a 2b 2c 2d 2e 2f 3 4",
    "phase_due": "1 2 3 3a 3b 3c 3d 3e 3f 4 5 6",
    "member_added": "1 2 3 4 4a 4b 4c 4d 5",
    "member_removed": "1 2 3 3a 3b 3c 4",
    "poll_check": "1 2 3 3a 3b 3c 3d 3e",
    "polling_protocol": "1 2 3 4a 4b 4c 5",
    "rollback_protocol": "1 2 3 3a 3b 3c 3d 3e 3f 4",
    "catch_up_protocol": "1 2 3a 3b 3c 3d 4",
}


@pytest.mark.parametrize(
    ("part", "number"), [(part, number) for part, numbers in NUMBERED.items() for number in numbers.split()]
)
def test_a_numbered_behaviour_has_a_test(part: str, number: str) -> None:
    content = (Path(__file__).parent / f"test_contract_{part}.py").read_text()
    assert f"async def test_{part}_{number}_" in content
