"""How the engine finds and uses Temporal."""

from __future__ import annotations

from msgspec import Struct


class TemporalSettings(Struct, frozen=True, kw_only=True):
    address: str = "127.0.0.1:7233"
    namespace: str = "default"
    task_queue: str = "lucius"
    api_key: str = ""
    """For Temporal Cloud; implies TLS."""
    tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_server_name: str = ""
    metrics_address: str = ""
    """Where the SDK's own metrics are served for Prometheus, such as 127.0.0.1:9464; empty disables them."""
    search_attributes: bool = True
    """Whether jobs carry search attributes; they are added to the namespace where that is allowed."""
    rpc_timeout_seconds: float = 10.0
    reconcile_interval: float = 30.0
    overdue_seconds: float = 10.0
    """How old a job must be before a missing workflow counts as drift."""
    task_seconds: float = 10.0
    """How long a worker has for one workflow task before another may try it."""
    sticky_seconds: float = 5.0
    """How long a workflow task waits for the worker that has the job cached before any other may take it."""
    publish_timeout_seconds: float = 10.0
    tenant_unacknowledged_max: int = 16
    """See `EngineSettings`."""
    workflow_tasks_max: int = 100
    sandbox: bool = False
    """Whether workflows run in the SDK's sandbox; tests use it, a server need not."""
    stop_seconds: float = 10.0
