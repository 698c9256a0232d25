"""The server that commands talk to. Every failed call raises `CommandFailed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from lucius.cli.failures import Unusable, command_failed
from lucius.client.addresses import AddressInvalid
from lucius.client.call import Script
from lucius.client.errors import ClientError
from lucius.client.keys import find_key
from lucius.client.session import Session
from lucius.client.transport import Transport

T = TypeVar("T")


class ApiSession(Session):
    """Makes each call once, unless the call sets `patience_seconds`."""

    def run(self, script: Script[T]) -> T:
        try:
            return super().run(script)
        except ClientError as error:
            raise command_failed(self.transport.url, error) from error


def open_session(url: str, api_key: str) -> ApiSession:
    try:
        return ApiSession(Transport(url, api_key))
    except AddressInvalid as error:
        raise Unusable(f"{url!r} is not a server address such as http://127.0.0.1:8000") from error


@dataclass(frozen=True)
class Connection:
    """The server's address and API key; opens nothing until a command needs it."""

    url: str
    api_key: str | None

    def open(self) -> ApiSession:
        return open_session(self.url, self.key())

    def key(self) -> str:
        return (self.api_key or "").strip() or find_key(self.url)
