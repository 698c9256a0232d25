"""Throw-away certificates, and a proxy that ends TLS in front of a plain server and keeps what clients sent."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAME = "temporal.example"
LOOPBACK = "127.0.0.1"


class Pair(NamedTuple):
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey


class Files(NamedTuple):
    cert: str
    key: str


class Authority:
    """A certificate authority whose files lie in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._pair = _signed(name, None)
        self.cert = self._write(name, self._pair).cert

    def issue(self, name: str) -> Files:
        return self._write(f"{self._name}-{name}", _signed(name, self._pair))

    def _write(self, name: str, pair: Pair) -> Files:
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(pair.cert.public_bytes(serialization.Encoding.PEM))
        key.write_bytes(
            pair.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Files(str(cert), str(key))


def _signed(name: str, issuer: Pair | None) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.cert.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        if name == SERVER_NAME:
            names: list[x509.GeneralName] = [x509.DNSName(name)]
        else:
            names = [x509.IPAddress(ipaddress.ip_address(LOOPBACK if name == LOOPBACK else "192.0.2.1"))]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


class Proxy:
    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.address = ""
        self.sent = b""
        """What clients have sent, without its TLS."""
        self.client_names: list[str] = []
        """The common names of the certificates that clients have shown."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert") or {}
        self.client_names += [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        try:
            await asyncio.gather(self._copy(reader, there_writer, keep=True), self._copy(there_reader, writer))
        finally:
            for each in (there_writer, writer):
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: bool = False) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if keep:
                    self.sent += data
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def tls_proxy(target: str, server: Files, clients_ca: str | None = None) -> AsyncIterator[Proxy]:
    """`clients_ca`: whose certificates a client must show; None asks for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)
    context.set_alpn_protocols(["h2"])
    if clients_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_ca)
    proxy = Proxy(target)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    proxy.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
