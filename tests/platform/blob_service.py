"""What tests of blobs in the platform kit share: an account on Azurite, and directives in it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.azurite import Azurite

from lucius.azure.blob import BlobAccount
from lucius.azure.blob_opening import StorageOptions
from lucius.azure.credential import AzureIdentity
from lucius.platform import Directive
from lucius.platform.blob_files import BlobFiles


def blob_files(connection: str) -> BlobFiles:
    return BlobFiles(StorageOptions(connection=connection), AzureIdentity())


def create_containers(azurite: Azurite, *names: str) -> None:
    async def create() -> None:
        async with BlobAccount.connected(azurite.connection) as account:
            for name in names:
                await account.create_container(name)

    asyncio.run(create())


def directive(workspace_root: str, tenant: str = "acme", **fields: Any) -> Directive:
    message = {
        "jobId": "job",
        "tenant_id": tenant,
        "stepId": "ocr",
        "step_type": "OCR",
        "service": "ocr",
        "attempt_no": 1,
        "lease_id": "lease",
        "lease_seconds": 60,
        "callback_token": "token",
        "workspace_ref": f"{workspace_root}/{tenant}/job/OCR/1/",
        **fields,
    }
    return Directive.read(message)
