"""What is measured, as the processes of the benchmark hand it to one another."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class CpuPerJob(msgspec.Struct, kw_only=True):
    server: float
    event_loop: float
    """Of the server's, what its event loop's thread used."""
    services: float
    load: float


class LoadResult(msgspec.Struct, kw_only=True):
    inflight_max: int
    inflight_mean: float
    connections: int
    jobs: int
    seconds: float
    """From before the first POST until nothing was in flight any more: ramp and drain are in it."""
    jobs_per_second: float
    accept_p50_ms: float
    accept_p99_ms: float
    refused: dict[str, int]
    ended: dict[str, int]
    """How many of the accepted jobs a read afterwards showed in which state; `MISSING` if in none."""
    cpu_seconds: float
    polls: int
    cpu_ms_per_job: CpuPerJob | None = None

    @property
    def clean(self) -> bool:
        return self.ended == {"SUCCEEDED": self.jobs} and not self.refused


class AloneResult(msgspec.Struct, kw_only=True):
    jobs: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    not_succeeded: int


class PostsResult(msgspec.Struct, kw_only=True):
    requests: int
    seconds: float
    requests_per_second: float
    cpu_seconds: float


class BareResult(msgspec.Struct, kw_only=True):
    fastapi_posts_per_second: float
    starlette_posts_per_second: float
    client_us_per_post: float
    """Processor time of the load generator for one request: what the measuring itself costs."""
    sqlite_commits_per_second: float
    sqlite_grouped_rows_per_second: float


def server_cpu(runs: Sequence[LoadResult]) -> list[float]:
    return [run.cpu_ms_per_job.server for run in runs if run.cpu_ms_per_job is not None]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank: a value that was measured, not one between two."""
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * percent) // 100) - 1))] if ordered else 0.0
