"""Certificates and node keys for a SuperLink with TLS and node authentication.

Every federation gets new ones, which never leave its folder. Real deployments have their own
authority; ``docs/deploy.md`` says which file is used for what.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

_LIFETIME = timedelta(days=30)


@dataclass(frozen=True)
class ServerFiles:
    """The files of the authority's certificate, and of the server's certificate and key."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class NodeKey:
    """The files of a node's private and public key."""

    private: Path
    public: Path


def make_server_files(folder: Path, host: str = "127.0.0.1") -> ServerFiles:
    """Create an authority and a server certificate for ``host`` and ``localhost``.

    The authority's private key is not written to disk: it signs only this certificate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = ServerFiles(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority = trustme.CA(path_length=0, organization_name="unskew loopback")
    server = authority.issue_cert(
        host,
        "localhost",
        organization_name="unskew loopback",
        not_after=datetime.now(UTC) + _LIFETIME,
    )
    authority.cert_pem.write_to_path(files.authority)
    server.cert_chain_pems[0].write_to_path(files.certificate)
    _write_private(files.key, server.private_key_pem.bytes())
    return files


def make_node_key(folder: Path, name: str) -> NodeKey:
    """Create the key pair that identifies a node to a SuperLink: P-384, in OpenSSH's formats."""
    folder.mkdir(parents=True, exist_ok=True)
    files = NodeKey(folder / name, folder / f"{name}.pub")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write_private(files.private, private)
    files.public.write_bytes(public + b"\n")
    return files


def _write_private(path: Path, key: bytes) -> None:
    """Write a key to a file that other users can never read, not even while it is written."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key)
