"""The connection to Temporal: address, namespace, TLS, API key, metrics, traces, search attributes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from lucius.domain.errors import InfrastructureError
from lucius.domain.job import Job
from lucius.engines.temporal.messages import DATA_CONVERTER
from lucius.engines.temporal.settings import TemporalSettings
from lucius.settings import SettingsError

TENANT = SearchAttributeKey.for_keyword("LuciusTenant")
STATUS = SearchAttributeKey.for_keyword("LuciusStatus")
REQUEST_TYPE = SearchAttributeKey.for_keyword("LuciusRequestType")
PROTOCOL = SearchAttributeKey.for_keyword("LuciusProtocol")
CERTIFICATE_ADVICE = "see LUCIUS_TEMPORAL_TLS_CA_FILE and LUCIUS_TEMPORAL_TLS_SERVER_NAME"
SEARCH_ATTRIBUTES = (TENANT, STATUS, REQUEST_TYPE, PROTOCOL)


async def connect(settings: TemporalSettings, interceptors: list[Interceptor] | None = None) -> Client:
    """Raises `InfrastructureError` if Temporal is unreachable or refuses the connection, `SettingsError` if a file
    named in the settings cannot be used."""
    options: dict[str, Any] = {}
    if settings.metrics_address:
        options["runtime"] = Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(settings.metrics_address)))
    try:
        client = await Client.connect(
            settings.address,
            namespace=settings.namespace,
            data_converter=DATA_CONVERTER,
            api_key=settings.api_key or None,
            tls=_tls(settings),
            interceptors=interceptors or [],
            **options,
        )
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=settings.namespace),
            timeout=timedelta(seconds=settings.rpc_timeout_seconds),
        )
    except (RuntimeError, RPCError) as error:
        if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
            detail = f"Temporal at {settings.address} has no namespace {settings.namespace}: create it, or set"
            raise InfrastructureError.unavailable(f"{detail} LUCIUS_TEMPORAL_NAMESPACE to one that exists") from error
        reason = f"its certificate is not trusted, {CERTIFICATE_ADVICE}: " if "InvalidCertificate" in str(error) else ""
        detail = f"Temporal at {settings.address} is unreachable: {reason}{error}"
        raise InfrastructureError.unavailable(detail) from error
    return client


def _tls(settings: TemporalSettings) -> TLSConfig | bool:
    files = (settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file)
    if not (settings.tls or settings.api_key or any(files)):
        return False
    if bool(settings.tls_cert_file) != bool(settings.tls_key_file):
        raise SettingsError("LUCIUS_TEMPORAL_TLS_CERT_FILE and LUCIUS_TEMPORAL_TLS_KEY_FILE go together: set both")
    return TLSConfig(
        server_root_ca_cert=_content("TLS_CA_FILE", settings.tls_ca_file),
        client_cert=_content("TLS_CERT_FILE", settings.tls_cert_file),
        client_private_key=_content("TLS_KEY_FILE", settings.tls_key_file),
        domain=settings.tls_server_name or None,
    )


def _content(name: str, path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise SettingsError(f"LUCIUS_TEMPORAL_{name}={path!r} cannot be read: {error.strerror}") from error


async def ensure_search_attributes(client: Client) -> list[str]:
    """Add the missing search attributes to the namespace; returns the added names."""
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    missing = [key.name for key in SEARCH_ATTRIBUTES if key.name not in known.custom_attributes]
    if not missing:
        return []
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=dict.fromkeys(missing, keyword))
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # Another process was faster.
            raise
    return missing


def search_attributes_of(job: Job) -> TypedSearchAttributes:
    spec = job.spec
    return TypedSearchAttributes(
        [
            SearchAttributePair(TENANT, spec.tenant_id),
            SearchAttributePair(STATUS, str(job.status)),
            SearchAttributePair(REQUEST_TYPE, spec.request_type),
            SearchAttributePair(PROTOCOL, spec.protocol_id),
        ]
    )
