"""Which storage account a process uses, and as whom: the same settings for the server and for services."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lucius.azure.blob import BlobAccount
from lucius.azure.credential import AzureIdentity, credential_fault

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_SAS = re.compile(r"\??[\w%.~&=:+/-]*\bsig=[\w%.~&=:+/-]+", re.ASCII)
EXTRA_HINT = "needs the extra `azure`: pip install '.[azure]' in a clone of LUCIUS"


@dataclass(frozen=True)
class StorageOptions:
    """`connection` is for emulators and tests; otherwise the account's name, with a SAS or the process's identity."""

    connection: str = field(default="", repr=False)
    account: str = ""
    sas: str = field(default="", repr=False)

    @property
    def is_set(self) -> bool:
        return bool(self.connection or self.account)

    def fault(self, credential: str = "managed") -> str | None:
        """What is wrong with the settings, for a person and without secrets."""
        if self.sas and not self.account:
            return "LUCIUS_STORAGE_SAS needs LUCIUS_STORAGE_ACCOUNT, the name of its account"
        if self.account and not _ACCOUNT.fullmatch(self.account):
            return "LUCIUS_STORAGE_ACCOUNT is not the name of a storage account: 3 to 24 small letters and digits"
        if self.sas and not _SAS.fullmatch(self.sas):
            return "LUCIUS_STORAGE_SAS is not a shared access signature: it has no sig, or characters that none has"
        if self.account and not self.connection and not self.sas:
            return credential_fault(credential)
        return None

    def open(self, identity: AzureIdentity) -> BlobAccount:
        """To be closed by the caller. Raises `ValueError` for settings that name no account."""
        try:
            if self.connection:
                try:
                    return BlobAccount.connected(self.connection)
                except ValueError as error:
                    raise ValueError(f"LUCIUS_STORAGE_CONNECTION: {error}") from None
            if not self.account:
                raise ValueError("no storage account is named: set LUCIUS_STORAGE_ACCOUNT")
            return BlobAccount.named(self.account, self.sas or identity.credential())
        except ModuleNotFoundError as error:
            raise ValueError(f"a storage account {EXTRA_HINT}") from error
