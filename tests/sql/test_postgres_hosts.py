"""A URL that names several PostgreSQL servers, taken apart."""

from __future__ import annotations

import pytest

from lucius.sql.postgres_hosts import one_url_per_host


@pytest.mark.parametrize(
    ("url", "apart"),
    [
        ("postgresql://u:p@a/db", ["postgresql://u:p@a/db"]),
        ("postgresql://u:p@a:1,b:2/db?x=y", ["postgresql://u:p@a:1/db?x=y", "postgresql://u:p@b:2/db?x=y"]),
        ("postgresql://u@[::1]:1,[::2]/db", ["postgresql://u@[::1]:1/db", "postgresql://u@[::2]/db"]),
        ("postgresql://u:a%2Cb@c/db", ["postgresql://u:a%2Cb@c/db"]),
        ("postgresql:///db?host=/tmp&port=1", ["postgresql:///db?host=/tmp&port=1"]),
        ("postgresql:///db?host=a,b&port=1,2", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=2"]),
        ("postgresql:///db?host=a,b&port=1", ["postgresql:///db?host=a&port=1", "postgresql:///db?host=b&port=1"]),
        ("postgresql:///db?host=a,b", ["postgresql:///db?host=a", "postgresql:///db?host=b"]),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, apart: list[str]) -> None:
    assert one_url_per_host(url) == apart
