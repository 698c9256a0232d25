"""What a bus on Service Bus is told: which namespace, and who it is there."""

from __future__ import annotations

from msgspec import Struct

from lucius.azure.credential import credential_fault


class ServiceBusOptions(Struct, frozen=True, kw_only=True):
    connection: str = ""
    """A connection string, for emulators and tests."""
    namespace: str = ""
    """The namespace's host name, such as `lanes.servicebus.windows.net`."""
    credential: str = "managed"
    """Who this process is to the namespace: one of `lucius.azure.credential.CREDENTIALS`."""
    client_id: str = ""
    """Of a managed identity that the user assigned."""
    administration: str = ""
    """A connection string for the administration API, if it is at another address: emulators."""
    administration_ca_file: str = ""

    @property
    def location(self) -> str:
        """The namespace, without any key."""
        if not self.connection:
            return self.namespace
        parts = dict(part.partition("=")[::2] for part in self.connection.split(";") if part)
        return parts.get("Endpoint", "").removeprefix("sb://").rstrip("/") or "Service Bus"

    def fault(self) -> str | None:
        """What is wrong with these options, for a person."""
        if bool(self.connection) is bool(self.namespace):
            return "LUCIUS_BUS=servicebus needs either LUCIUS_SERVICEBUS_CONNECTION or LUCIUS_SERVICEBUS_NAMESPACE"
        if self.connection and "Endpoint=sb://" not in self.connection:
            return "LUCIUS_SERVICEBUS_CONNECTION must be a connection string: Endpoint=sb://…;SharedAccessKeyName=…"
        if self.connection and "UseDevelopmentEmulator=true" not in self.connection and ":5672" in self.connection:
            return "LUCIUS_SERVICEBUS_CONNECTION: an emulator needs UseDevelopmentEmulator=true"
        return credential_fault(self.credential)
