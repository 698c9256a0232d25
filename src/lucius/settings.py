"""Settings from `LUCIUS_*` environment variables, which are read once and then passed explicitly."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from lucius.domain.protocol import PolicyOverride


class SettingsError(Exception):
    """An invalid setting; the message names it."""


class Settings(Struct, frozen=True, kw_only=True):
    """Each field is the variable `LUCIUS_<FIELD>`; `docs/reference/settings.md` describes every one."""

    # Locations.
    ledger: str = "sqlite"
    """`memory`, `sqlite` (a file in the data folder), `sqlite:///path`, or `postgresql://…`."""
    bus: str = "sql"
    """`sql` (in the ledger's database), `memory`, `nats://host:port[,host:port]` (NATS JetStream; `tls://…`), or
    `servicebus` (Azure Service Bus)."""
    bus_replies: bool = False
    """Whether callbacks are also taken from the bus, from the topics `global-bus-replies-p0` to `-p15`."""
    engine: str = "outbox"
    """`outbox` or `temporal`: what drives new jobs. Each job stays with the engine that accepted it."""
    registry: str = ""
    """Folder of `protocols/`, `tenants/` and `globals.yaml`, or `appconfig://NAME.azconfig.io`; empty means the one
    that ships with LUCIUS."""
    registry_label: str = ""
    """In App Configuration: the label of this environment's key-values; empty means those without a label."""
    registry_container: str = ""
    """In App Configuration: the container of documents that are too large for a key-value."""
    registry_cache: str = ""
    """In App Configuration: the file with the last good state; empty means `registry-cache.json` in the data folder."""
    appconfig_connection: str = ""
    """A connection string of App Configuration, for emulators and tests."""
    appconfig_poll_seconds: float = 30.0
    data: str = ".lucius"
    host: str = "127.0.0.1"
    port: int = 8000
    management_host: str = "127.0.0.1"
    management_port: str = "auto"
    """A port, `auto` (8001, or a free one if that is taken) or `off`."""
    orchestrator_url: str = ""
    """The address that services call back on; empty means `http://host:port`."""
    own_callback_urls: tuple[str, ...] = ()
    """Further addresses of LUCIUS itself that a command's `callback_urls.ack` and `.result` may name."""
    workspace_root: str = ""
    """Root of `workspace_ref`; empty means the folder `workspace` in the data folder, as a `file://` URI."""
    file_refs_allowed: bool = False
    """Whether `file` refs are allowed with a shared ledger: everything that uses them is on one machine."""
    platform_file_roots: tuple[str, ...] = ()
    """More folders that `file` refs may be under, as for services: see `lucius.platform.file_roots`."""
    platform_blob_roots: tuple[str, ...] = ()
    """Where `blob` refs may lead, as for services: see `lucius.platform.blob_roots`."""
    platform_https_hosts: tuple[str, ...] = ()
    """The only hosts that the services of `lucius up` read `https` inputs from; empty means every public host."""
    platform_private_addresses_allowed: bool = False
    """Whether they read such inputs from private networks too."""

    # The console.
    console: str = "on"
    """`on` or `off`: whether the API serves the console."""
    console_url: str = ""
    """The address that people open the console at, without `/console`; empty means the orchestrator's."""
    console_trace_url: str = ""
    """The address of a trace, with `{trace_id}` in it; empty means that traces are not linked."""
    console_session_hours: float = 12.0
    oidc_issuer: str = ""
    """The OpenID Connect issuer that people sign in to the console with; empty means none."""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    """Empty: a public client, which has only PKCE."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile")

    # Authentication.
    api_key: str = ""
    api_keys_file: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwks_url: str = ""
    jwt_tenants_claim: str = "tenants"
    jwt_roles_claim: str = "roles"
    jwt_services_claim: str = ""
    jwt_worker_ids_claim: str = ""
    """If either is set, a token is limited to the services and runbook workers that its claims name."""
    tenants_registered_only: bool = False
    """Whether commands of unregistered tenants are rejected, whatever `globals.yaml` says."""
    callback_keys: tuple[str, ...] = ()
    """`id:secret` pairs; the first signs, all verify. Empty means a generated one, kept in the data folder."""

    # Limits of a request.
    body_bytes_max: int = 131_072
    body_depth_max: int = 32
    artifacts_bytes_max: int = 65_536
    callbacks_body_bytes_max: int = 4_194_304
    batch_commands_max: int = 500
    batch_callbacks_max: int = 500
    page_size_max: int = 500
    lists_max: int = 2
    lists_per_caller_max: int = 1
    list_seconds_max: float = 5.0
    wait_seconds_max: float = 60.0
    pull_max: int = 256

    # Connections.
    connections_max: int = 2_000
    waits_per_principal_max: int = 800
    """Long polls and waits that one principal may have open at once."""
    waits_max: int = 1_200
    streams_per_principal_max: int = 100
    """Event streams and downloads that one principal may have open at once."""
    streams_max: int = 400
    connections_per_peer_max: int = 1_000
    """Connections from one address, unless it is one of `trusted_proxies`."""
    connections_reserved: int = 100
    """Beyond `connections_max`, only for health checks and callbacks."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks that many clients come from."""
    header_bytes_max: int = 32_768
    headers_max: int = 100
    bodies_bytes_max: int = 67_108_864
    """Memory for all bodies that are being received, beyond the first 16 KiB of each."""
    connect_seconds: float = 10.0
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    keep_alive_seconds: float = 75.0
    write_seconds: float = 30.0

    # Policies, unless the protocol step or the tenant sets its own.
    max_attempts: int | None = None
    ack_timeout_seconds: float | None = None
    queue_timeout_seconds: float | None = None
    lease_seconds: float | None = None
    max_step_seconds: float | None = None
    job_deadline_seconds: float | None = None
    dispatch_backoff_seconds: tuple[float, ...] | None = None
    ack_backoff_seconds: tuple[float, ...] | None = None
    execution_backoff_seconds: tuple[float, ...] | None = None
    max_inflight: int | None = None
    max_inflight_per_tenant: int | None = None
    rate_gate: str = ""
    """`redis://` or `rediss://[user:password@]host:port/database`: request rates shared by all API processes; empty
    means that each process has its own."""
    rate_gate_ca_file: str = ""

    # The engine.
    outbox_retry_interval: float = 1.0
    tenant_unacknowledged_max: int = 16
    sweep_interval: float = 0.25
    repair_interval: float = 60.0
    turn_inputs_max: int = 512
    queue_inputs_max: int = 20_000
    claim_seconds: float = 30.0
    publish_timeout_seconds: float = 10.0
    circuit_open_seconds: float = 5.0
    cache_bytes_max: int = 67_108_864
    stop_seconds: float = 10.0
    operations_interval: float = 0.5
    """How often a process that reconciles carries on with bulk operations."""
    operation_jobs_max: int = 100_000
    """Jobs that one bulk operation may act on."""
    postgres_pool_max: int = 8
    postgres_listen: str = "auto"
    """`auto`: processes that share PostgreSQL wake each other by LISTEN and NOTIFY, and poll where that does not work.
    `off`: they poll."""
    clock_skew_seconds_max: float = 30.0
    """On a shared ledger: how far this machine's clock may be from the database's."""
    dead_message_seconds: int = 1_209_600
    """How long a dead letter is kept, unless its job is pruned first."""

    # Temporal.
    temporal_address: str = "127.0.0.1:7233"
    temporal_namespace: str = "default"
    temporal_task_queue: str = "lucius"
    temporal_api_key: str = ""
    temporal_tls: bool = False
    temporal_tls_ca_file: str = ""
    temporal_tls_cert_file: str = ""
    temporal_tls_key_file: str = ""
    temporal_tls_server_name: str = ""
    temporal_metrics_address: str = ""
    temporal_search_attributes: bool = True
    temporal_reconcile_interval: float = 30.0
    temporal_workflow_tasks_max: int = 100

    # NATS.
    nats_prefix: str = "lucius"
    nats_replicas: int = 1
    nats_token: str = ""
    nats_user: str = ""
    nats_password: str = ""
    nats_credentials_file: str = ""
    nats_nkey_seed_file: str = ""
    nats_tls_ca_file: str = ""
    nats_tls_cert_file: str = ""
    nats_tls_key_file: str = ""
    nats_tls_server_name: str = ""
    nats_monitor_urls: tuple[str, ...] = ()
    """Monitoring addresses of the servers, which are asked whether they sync every write to disk."""

    # Azure Service Bus.
    servicebus_connection: str = ""
    """A connection string, for emulators and tests."""
    servicebus_namespace: str = ""
    """The namespace's host name; who this process is there, `azure_credential` says."""
    servicebus_administration: str = ""
    """A connection string for the administration API, if that is at another address: emulators."""
    servicebus_administration_ca_file: str = ""

    # Azure.
    azure_credential: str = "managed"
    """`managed`, `workload`, `cli` or `environment`."""
    azure_client_id: str = ""
    secrets_refresh_seconds: float = 300.0
    """How often secrets in Key Vault are read again."""
    storage_account: str = ""
    """The name of the storage account; who this process is there, `azure_credential` says."""
    storage_connection: str = ""
    """A connection string of a storage account, for emulators and tests."""
    table_prefix: str = "lucius"
    """What the names of the ledger's tables and of its container begin with."""
    storage_sas: str = ""
    """A shared access signature of the storage account, instead of the credential."""

    # Runbooks.
    runbooks_database: str = ""
    """`sqlite:///path` or `postgresql://…`: the database of runbooks alone. Empty means the ledger's, if that is SQL;
    otherwise they are off. `off`: they are off."""
    scheduler_interval: float = 1.0
    scheduler_lease_seconds: float = 30.0
    source_interval: float = 60.0
    source_share_min: float = 0.5
    source_query_seconds: float = 30.0
    source_rows_max: int = 200_000
    source_still_seconds: float = 2.0
    source_absence_seconds: float = 300.0
    sources_file: str = ""
    """Lists connections of sources, besides the environment; read again when it changes."""
    runbook_sweep_interval: float = 0.5
    runbook_lock_seconds: float = 60.0
    worker_lock_seconds: float = 60.0
    members_bytes_max: int = 16_777_216

    # Webhooks.
    webhook_private_addresses_allowed: bool = False
    webhook_attempts_max: int = 8
    webhook_timeout_seconds: float = 10.0
    webhook_calls_max: int = 64
    webhook_calls_per_tenant_max: int = 16
    webhook_calls_per_host_max: int = 8

    # E-mail.
    smtp_host: str = ""
    """The server that sends e-mail; empty: e-mail recipients are not served."""
    smtp_port: int = 587
    smtp_tls: str = "starttls"
    """`starttls`, `tls` (from the first byte) or `off`."""
    smtp_user: str = ""
    smtp_password: str = ""
    smtp_from: str = ""
    """The sender's address."""
    smtp_domains: tuple[str, ...] = ()
    """The only domains that e-mail goes to; empty means all."""
    smtp_timeout_seconds: float = 10.0

    # Retention.
    retention_days: float = 0.0
    """How many days ended jobs are kept, unless their tenant sets it; 0: until somebody prunes them."""
    archive: str = ""
    """`file:///a/folder` or `blob://container/prefix`: where jobs go before they are deleted; empty: nowhere."""
    archive_format: str = "jsonl"
    """`jsonl` or `parquet`."""

    # Telemetry.
    log_level: str = "auto"
    """A level, or `auto`: WARNING if standard error is a terminal, INFO otherwise."""
    log_format: str = "auto"
    """`json`, `text`, or `auto`: short lines for people if standard error is a terminal, JSON otherwise."""
    otlp_endpoint: str = ""

    registry_reload_seconds: float = 2.0

    @property
    def public_url(self) -> str:
        return self.orchestrator_url or f"http://{self.host}:{self.port}"

    @property
    def secret_values(self) -> tuple[str, ...]:
        """What must not be in a log line or a report."""
        of_bus = (self.servicebus_connection, self.servicebus_administration)
        connections = ";".join((self.storage_connection, self.appconfig_connection, *of_bus))
        in_connections = re.findall(r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|Secret)=([^;]+)", connections)
        signatures = re.findall(r"\bsig=([^&;]+)", f"{self.storage_sas};{connections}")
        keys = (
            self.api_key,
            self.oidc_client_secret,
            self.smtp_password,
            *(key.partition(":")[2] for key in self.callback_keys),
        )
        gate = re.findall(r"^\w+://[^/@:]*:([^/]+)@", self.rate_gate)
        tokens = (self.nats_token, self.nats_password, self.temporal_api_key, self.storage_sas)
        return (*keys, *tokens, *gate, *in_connections, *signatures)

    @property
    def has_console(self) -> bool:
        value = self.console.strip().lower()
        if value not in ("on", "off"):
            raise SettingsError(f"LUCIUS_CONSOLE={self.console!r}: must be on or off")
        return value == "on"

    @property
    def console_address(self) -> str:
        """Where people open the console."""
        return f"{(self.console_url or self.public_url).rstrip('/')}/console"

    @property
    def openid_return_address(self) -> str:
        """Where the OpenID Connect issuer sends people back to, character by character."""
        return f"{self.console_address}{OPENID_RETURN_PATH}"

    @property
    def policy(self) -> PolicyOverride:
        return PolicyOverride(**{name: getattr(self, name) for name in PolicyOverride.__struct_fields__})


def read_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Read `LUCIUS_*`; an unknown or invalid variable is an error."""
    environ = os.environ if environ is None else environ
    hints = get_type_hints(Settings)
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith("LUCIUS_") or variable.startswith("LUCIUS_TEST_"):
            continue
        name = variable.removeprefix("LUCIUS_").lower()
        if name not in hints:
            if name in CLIENT_VARIABLES or name.startswith(SERVICE_PREFIXES):
                continue
            raise SettingsError(f"{variable} is not a setting of LUCIUS; see docs/reference/settings.md")
        is_list = "tuple" in str(hints[name])
        value: Any = [part.strip() for part in text.split(",") if part.strip()] if is_list else text
        if KEY_VAULT in text and name not in REFERABLE:
            raise SettingsError(
                f"{variable} cannot be a Key Vault reference; these can: LUCIUS_"
                + ", LUCIUS_".join(sorted(REFERABLE)).upper()
            )
        try:
            values[name] = msgspec.convert(value, hints[name], strict=False)
        except msgspec.ValidationError as error:
            raise SettingsError(f"{variable}={text!r}: {error}") from error
    values.update({name: value for name, value in overrides.items() if value is not None})
    return Settings(**values)


TRACE_ID = "{trace_id}"
"""What stands for the id in `console_trace_url`."""
OPENID_RETURN_PATH = "/sign-in/openid/return"
"""Below the console."""
KEY_VAULT = "keyvault://"
REFERABLE = frozenset({"api_key", "api_keys_file", "callback_keys", "oidc_client_secret", "smtp_password"})
"""Settings that may be references to secrets in Azure Key Vault."""
CLIENT_VARIABLES = frozenset({"url", "service", "contract_test"})
"""Variables with the same prefix that the command line and the contract kit read."""
SERVICE_PREFIXES = ("platform_", "embedding_", "sis_", "worker_", "source_", "notify_")
"""Variables of platform services and runbook workers, which may run in the same environment, of data sources, and of
recipients of notifications."""
