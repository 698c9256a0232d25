"""Who this process is to Azure. A credential is chosen by name, never probed, and there is one a process."""

from __future__ import annotations

from types import TracebackType
from typing import Any

CREDENTIALS = ("managed", "workload", "cli", "environment")


def credential_fault(name: str) -> str | None:
    """What is wrong with the name of a credential, for a person."""
    if name in CREDENTIALS:
        return None
    return f"LUCIUS_AZURE_CREDENTIAL={name!r}: must be one of {', '.join(CREDENTIALS)}"


def open_credential(name: str, client_id: str = "") -> Any:
    """An async credential; whoever opens it closes it. `client_id` names one of several identities."""
    from azure.identity import aio

    chosen: dict[str, Any] = {"client_id": client_id} if client_id else {}
    if name == "managed":
        return aio.ManagedIdentityCredential(**chosen)
    if name == "workload":
        return aio.WorkloadIdentityCredential(**chosen)
    if name == "cli":
        return aio.AzureCliCredential()
    if name == "environment":
        return aio.EnvironmentCredential()
    raise ValueError(credential_fault(name))


class AzureIdentity:
    """The one credential of a process, which everything that talks to Azure shares. It is opened when it is first
    asked for, so that a process with connection strings alone needs none, and closed with this."""

    def __init__(self, name: str = "managed", client_id: str = "") -> None:
        self.name = name
        self._client_id = client_id
        self._credential: Any = None

    def credential(self) -> Any:
        if self._credential is None:
            self._credential = open_credential(self.name, self._client_id)
        return self._credential

    async def close(self) -> None:
        if self._credential is not None:
            await self._credential.close()
            self._credential = None

    async def __aenter__(self) -> AzureIdentity:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
