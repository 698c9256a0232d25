"""A certificate authority for one run, and a server's certificate by it. For tests only: keys are short-lived files."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

VALID_DAYS = 7
CA_FILE = "servicebus-test-ca.pem"


@dataclass(frozen=True, slots=True)
class TestCertificates:
    __test__ = False

    ca_file: Path
    """What clients must trust."""
    context: ssl.SSLContext
    """What the server listens with."""


def make_certificates(host: str, folder: Path) -> TestCertificates:
    """Writes the authority's certificate to the folder. No key is left behind."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "LUCIUS Service Bus test CA")])
    ca = _sign(ca_name, ca_name, ca_key, ca_key, None)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    certificate = _sign(name, ca_name, server_key, ca_key, host)
    ca_file = folder / CA_FILE
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    key_text = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    handle, chain = tempfile.mkstemp(dir=folder)  # Only its owner can read it.
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate.public_bytes(serialization.Encoding.PEM) + key_text)
        context.load_cert_chain(chain)
    finally:
        Path(chain).unlink()
    return TestCertificates(ca_file, context)


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    host: str | None,
) -> x509.Certificate:
    """A server's certificate, or, without a host, the authority's own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    is_ca = host is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(_usage(is_ca), critical=True)
    )
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _usage(is_ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names(host: str) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    return names
