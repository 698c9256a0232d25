"""The server that commands talk to. Every failed call raises `CommandFailed`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from lucius.cli.failures import Unusable, command_failed
from lucius.cli.server_profiles import ServerProfile, read_profiles
from lucius.client.addresses import URL_DEFAULT, AddressInvalid
from lucius.client.call import Json, Script
from lucius.client.errors import ClientError
from lucius.client.following import Following
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

    def follow(self, following: Following) -> Iterator[Json]:
        try:
            yield from super().follow(following)
        except ClientError as error:
            raise command_failed(self.transport.url, error) from error


def open_session(url: str, api_key: str) -> ApiSession:
    try:
        return ApiSession(Transport(url, api_key))
    except AddressInvalid as error:
        raise Unusable(f"{url!r} is not a server address such as http://127.0.0.1:8000") from error


@dataclass(frozen=True)
class Connection:
    """The server's address and API key; opens nothing until a command needs it.

    A profile's key is sent to the profile's server alone."""

    given_url: str | None
    """By --url or LUCIUS_URL: no profile counts."""
    given_key: str | None
    profile: str | None = None
    """By --server-profile or LUCIUS_PROFILE, instead of the one in use."""

    @cached_property
    def _profile(self) -> ServerProfile | None:
        if self.given_url is not None:
            return None
        known = read_profiles()
        name = self.profile or known.current
        return None if name is None else known.get(name)

    @property
    def url(self) -> str:
        return self.given_url or (self._profile.url if self._profile else URL_DEFAULT)

    @property
    def api_key(self) -> str | None:
        """The key that was named, be it by a profile; not one that is found on this machine."""
        return (self.given_key or "").strip() or (self._profile.api_key if self._profile else "") or None

    def open(self) -> ApiSession:
        return open_session(self.url, self.key())

    def key(self) -> str:
        return self.api_key or find_key(self.url)
