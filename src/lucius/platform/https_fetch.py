"""Inputs from the web: a GET to a checked address, within limits of size and time, into a temporary file.

A client chooses the URL, and this service is inside the network, so the rules are those of webhooks
(`public_addresses`), again for every redirect. Nothing of the service is sent along: no credentials, no cookies.
"""

from __future__ import annotations

import asyncio
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, cast

import httpx

from lucius.kit.threads import DaemonThreads
from lucius.platform.errors import RATE_LIMITED_SECONDS, NonRetryable, RateLimited, Retryable, StepFailed
from lucius.platform.https_inputs import HttpsInputs
from lucius.platform.refs import ref_uri
from lucius.public_addresses import AddressRefused, AddressUnknown, allowed_addresses

REDIRECTS_MAX = 5
CONNECT_SECONDS_MAX = 10.0
SILENCE_SECONDS_MAX = 30.0
TIMEOUT = httpx.Timeout(SILENCE_SECONDS_MAX, connect=CONNECT_SECONDS_MAX)
RETRY_AFTER_SECONDS_MAX = 3_600.0
USE = "inputs are not read from there"


def fetched(inputs: HttpsInputs, ref: object, what: str, bytes_max: int, check: Callable[[], None]) -> BinaryIO:
    """An open temporary file with the content."""
    file = cast(BinaryIO, NamedTemporaryFile(prefix="lucius-"))  # noqa: SIM115 - the caller closes it
    try:
        _run(_Fetch(inputs, what, bytes_max, check).into(file, ref_uri(ref, what)))
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _run(call: Coroutine[Any, Any, None]) -> None:
    """In an event loop and a thread of its own: a deadline over all of a call, headers that drip included, exists only
    there, and the caller may be in an event loop itself."""
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            with asyncio.Runner() as runner:
                # A lookup that hangs must not be waited for.
                runner.get_loop().set_default_executor(DaemonThreads(1))
                runner.run(call)
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="lucius-https-input", daemon=True).start()
    error = ended.get()
    if error is not None:
        raise error


@cache
def _system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()


@dataclass(frozen=True)
class _Fetch:
    inputs: HttpsInputs
    what: str
    bytes_max: int
    check: Callable[[], None]

    async def into(self, file: BinaryIO, uri: str) -> None:
        try:
            async with asyncio.timeout(self.inputs.seconds_max):
                await self._follow(file, uri)
        except TimeoutError:
            text = f"the {self.what} cannot be read now: it did not come within {self.inputs.seconds_max:g} s"
            raise Retryable("INPUT_UNAVAILABLE", text) from None

    async def _follow(self, file: BinaryIO, uri: str) -> None:
        for _ in range(REDIRECTS_MAX + 1):
            onward = await self._get(self._checked_url(uri), file)
            if onward is None:
                return
            uri = onward
        raise NonRetryable("INPUT_REFUSED", f"the {self.what} is redirected more than {REDIRECTS_MAX} times")

    def _checked_url(self, uri: str) -> httpx.URL:
        try:
            target = httpx.URL(uri)
        except (httpx.InvalidURL, ValueError) as error:
            raise NonRetryable("REF_INVALID", f"the {self.what} is not an address that can be called") from error
        if target.scheme != "https" or not target.host or target.userinfo:
            text = "must be https, with a host and without credentials, and so must be where it redirects to"
            raise NonRetryable("REF_INVALID", f"the {self.what} {text}")
        if not self.inputs.allows(target.host):
            text = f"the {self.what} is on {target.host}, which LUCIUS_PLATFORM_HTTPS_HOSTS does not list"
            raise NonRetryable("PATH_FORBIDDEN", text)
        return target

    async def _get(self, target: httpx.URL, file: BinaryIO) -> str | None:
        """Where to look instead, or None if the content is in the file."""
        host, port = target.raw_host.decode("ascii"), target.port or 443
        failure = "no address"
        for address in await self._addresses(host, port):
            try:
                return await self._get_from(address, target, file)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = "its certificate is not valid" if "CERTIFICATE" in str(error).upper() else "unreachable"
        raise Retryable("INPUT_UNAVAILABLE", f"the {self.what} cannot be read now: {host}: {failure}")

    async def _addresses(self, host: str, port: int) -> list[IPv4Address | IPv6Address]:
        try:
            return allowed_addresses(host, await _resolved(host, port), self.inputs.private_allowed, USE)
        except AddressRefused as error:
            raise NonRetryable("PATH_FORBIDDEN", f"the {self.what} may not be read: {error}") from error
        except AddressUnknown as error:
            raise Retryable("INPUT_UNAVAILABLE", f"the {self.what} cannot be read now: {error}") from error

    async def _get_from(self, address: IPv4Address | IPv6Address, target: httpx.URL, file: BinaryIO) -> str | None:
        # A proxy would resolve the name again, so none is used.
        options: dict[str, Any] = {"verify": _system_trust(), "trust_env": False, "follow_redirects": False}
        async with httpx.AsyncClient(timeout=TIMEOUT, **options) as client:
            request = client.build_request(
                "GET",
                target.copy_with(host=str(address), fragment=None),
                headers={"Host": target.netloc.decode("ascii"), "Accept-Encoding": "identity"},
                # The certificate must match the name, whichever address is called.
                extensions={"sni_hostname": target.raw_host.decode("ascii")},
            )
            try:
                response = await client.send(request, stream=True)
                try:
                    if response.is_redirect and (location := response.headers.get("location")):
                        return str(target.join(location))
                    self._check_answer(response, target.host)
                    await self._save(response, file)
                finally:
                    await response.aclose()
            except (httpx.ConnectError, httpx.ConnectTimeout):
                raise
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                text = f"the {self.what} cannot be read now: {target.host} broke off ({type(error).__name__})"
                raise Retryable("INPUT_UNAVAILABLE", text) from error
        return None

    def _check_answer(self, response: httpx.Response, host: str) -> None:
        status = response.status_code
        said = f"{host} answers {status}"
        if status in (404, 410):
            raise NonRetryable("INPUT_NOT_FOUND", f"the {self.what} does not exist: {said}")
        if status in (401, 403, 407, 451):
            raise NonRetryable("INPUT_FORBIDDEN", f"the {self.what} may not be read: {said}")
        if status == 429:
            wait = _seconds(response.headers.get("retry-after", ""))
            text = f"the {self.what} cannot be read now: {said}"
            raise RateLimited("INPUT_RATE_LIMITED", text, wait or RATE_LIMITED_SECONDS)
        if status >= 500 or status == 408:
            raise Retryable("INPUT_UNAVAILABLE", f"the {self.what} cannot be read now: {said}")
        if status != 200:
            raise NonRetryable("INPUT_REFUSED", f"the {self.what} cannot be read: {said}")
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise NonRetryable("INPUT_REFUSED", f"the {self.what} cannot be read: {host} sends it compressed, unasked")
        size = response.headers.get("content-length", "")
        if size.isdecimal() and int(size) > self.bytes_max:
            raise self._too_large()

    async def _save(self, response: httpx.Response, file: BinaryIO) -> None:
        size = 0
        # Raw, so that nothing is decompressed, and as it comes, so that what drips is noticed.
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > self.bytes_max:
                raise self._too_large()
            file.write(chunk)
            self.check()

    def _too_large(self) -> StepFailed:
        return NonRetryable("INPUT_TOO_LARGE", f"the {self.what} has more than {self.bytes_max} bytes")


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


async def _resolved(host: str, port: int) -> list[str]:
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            return await asyncio.get_running_loop().run_in_executor(None, resolve, host, port)
    except TimeoutError:
        raise AddressUnknown(f"the name {host} does not resolve within {CONNECT_SECONDS_MAX:g} s") from None
    except (OSError, UnicodeError):
        return []


def _seconds(text: str) -> float | None:
    return min(float(text), RETRY_AFTER_SECONDS_MAX) if text.isdecimal() else None
