"""Clients of a namespace: for messages, and for its administration."""

from __future__ import annotations

import logging
from typing import Any

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from lucius.azure.credential import AzureIdentity
from lucius.buses.servicebus.options import ServiceBusOptions

RETRIES: dict[str, Any] = {"retry_total": 3, "retry_backoff_factor": 0.2, "retry_backoff_max": 5}


def identity_of(options: ServiceBusOptions) -> AzureIdentity:
    """For whoever has no identity of the process to share; it is theirs to close."""
    return AzureIdentity(options.credential, options.client_id)


def open_client(options: ServiceBusOptions, identity: AzureIdentity) -> ServiceBusClient:
    # It logs a page of stack for what LUCIUS says in a sentence.
    logging.getLogger("azure.servicebus").setLevel(logging.CRITICAL)
    if options.connection:
        return ServiceBusClient.from_connection_string(options.connection, **RETRIES)
    return ServiceBusClient(options.namespace, identity.credential(), **RETRIES)


def open_administration(options: ServiceBusOptions, identity: AzureIdentity) -> ServiceBusAdministrationClient:
    address = options.administration or options.connection
    verify: dict[str, Any] = {}
    if options.administration_ca_file:
        verify = {"connection_verify": options.administration_ca_file}
    if address:
        return ServiceBusAdministrationClient.from_connection_string(address, **verify)
    return ServiceBusAdministrationClient(options.namespace, identity.credential(), **verify)
