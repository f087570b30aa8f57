"""Certificates and node keys: what a SuperLink with TLS and node authentication asks for.

All of it is made anew for each federation and never leaves its folder. Real deployments have their
own authority; ``docs/deploy.md`` says which file plays which part.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLOCKS_DIFFER = timedelta(minutes=5)
_LIFE = timedelta(days=30)


@dataclass(frozen=True)
class ServerFiles:
    """Where the authority's certificate and the server's certificate and key are."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKey:
    """Where a node's private key and its public one are."""

    private: Path
    public: Path


def make_server_files(folder: Path, host: str = "127.0.0.1") -> ServerFiles:
    """Make an authority and a server certificate for an address and ``localhost``.

    The authority's private key is not written down: it signs this one certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = ServerFiles(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority_key, server_key = _new_key(), _new_key()
    issuer = _name("unskew loopback authority")
    authority = _certificate(issuer, authority_key, issuer, authority_key, _authority_extensions())
    server = _certificate(
        _name(host), server_key, issuer, authority_key, _server_extensions(host, authority_key)
    )
    files.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    files.certificate.write_bytes(server.public_bytes(Encoding.PEM))
    _write_private(files.key, server_key)
    return files


def make_node_key(folder: Path, name: str) -> NodeKey:
    """Make the pair of keys by which a SuperLink knows a node, in OpenSSH's formats."""
    folder.mkdir(parents=True, exist_ok=True)
    files = NodeKey(folder / name, folder / f"{name}.pub")
    key = _new_key()
    _write_private(files.private, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    files.public.write_bytes(public + b"\n")
    return files


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _write_private(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    form: PrivateFormat = PrivateFormat.PKCS8,
) -> None:
    """Write a key into a file that nobody else could read at any time."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    extensions: list[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA384())


def _authority_extensions() -> list[tuple[x509.ExtensionType, bool]]:
    return [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(signs_certificates=True), True),
    ]


def _server_extensions(
    host: str, authority: ec.EllipticCurvePrivateKey
) -> list[tuple[x509.ExtensionType, bool]]:
    names = [x509.IPAddress(ipaddress.ip_address(host)), x509.DNSName("localhost")]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.SubjectAlternativeName(names), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (issuer, False),
    ]


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
