"""The certificates and keys of a federation on loopback."""

import ssl
import stat

import pytest

pytest.importorskip("trustme")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from unskew.flower.loopback.certificates import make_node_key, make_server_files


def handshake(files, server_name: str) -> None:
    """Connect a client that trusts only this authority to a server, both in memory."""
    client_context = ssl.create_default_context(cafile=files.authority)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default in Python 3.13
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(files.certificate, files.key)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=server_name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() == server.version() == "TLSv1.3"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_client_that_trusts_the_authority_trusts_the_server(tmp_path, name):
    handshake(make_server_files(tmp_path), name)


def test_the_certificate_is_for_this_machine_only(tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.org"):
        handshake(make_server_files(tmp_path), "example.org")


def test_another_authority_is_not_trusted(tmp_path):
    ours, theirs = make_server_files(tmp_path / "ours"), make_server_files(tmp_path / "theirs")
    ours.authority.write_bytes(theirs.authority.read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ours, "127.0.0.1")


def test_only_the_owner_can_read_private_keys(tmp_path):
    for path in (make_server_files(tmp_path).key, make_node_key(tmp_path, "node-0").private):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_node_keys_are_on_p384_and_belong_together(tmp_path):
    files = make_node_key(tmp_path, "node-0")
    private = serialization.load_ssh_private_key(files.private.read_bytes(), None)
    public = serialization.load_ssh_public_key(files.public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    assert private.public_key() == public
    assert make_node_key(tmp_path, "node-1").public.read_bytes() != files.public.read_bytes()
