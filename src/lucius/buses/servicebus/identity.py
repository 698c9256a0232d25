"""Clients of a namespace: for messages, and for its administration. A credential is chosen by name, never probed."""

from __future__ import annotations

import logging
from typing import Any

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from lucius.buses.servicebus.options import ServiceBusOptions

RETRIES: dict[str, Any] = {"retry_total": 3, "retry_backoff_factor": 0.2, "retry_backoff_max": 5}


def open_credential(options: ServiceBusOptions) -> Any:
    """None for a connection string, which has its key."""
    if options.connection:
        return None
    from azure.identity import aio

    chosen: dict[str, Any] = {"client_id": options.client_id} if options.client_id else {}
    if options.credential == "managed":
        return aio.ManagedIdentityCredential(**chosen)
    if options.credential == "workload":
        return aio.WorkloadIdentityCredential(**chosen)
    return aio.AzureCliCredential() if options.credential == "cli" else aio.EnvironmentCredential()


def open_client(options: ServiceBusOptions, credential: Any) -> ServiceBusClient:
    # It logs a page of stack for what LUCIUS says in a sentence.
    logging.getLogger("azure.servicebus").setLevel(logging.CRITICAL)
    if options.connection:
        return ServiceBusClient.from_connection_string(options.connection, **RETRIES)
    return ServiceBusClient(options.namespace, credential, **RETRIES)


def open_administration(options: ServiceBusOptions, credential: Any) -> ServiceBusAdministrationClient:
    address = options.administration or options.connection
    verify: dict[str, Any] = {}
    if options.administration_ca_file:
        verify = {"connection_verify": options.administration_ca_file}
    if address:
        return ServiceBusAdministrationClient.from_connection_string(address, **verify)
    return ServiceBusAdministrationClient(options.namespace, credential, **verify)
