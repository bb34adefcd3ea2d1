"""Certificates of our own: whom they vouch for, and when they are made."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from quicksand import PathError
from quicksand_e2b import tls
from quicksand_e2b.tls import Certificates

from tests.each import each


async def _hello(certificates: Certificates, name: str, trusted: Path) -> bytes:
    """Connect by a name, as one who trusts a certificate."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.context())
    async with server:
        port = server.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cafile=str(trusted))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name
        )
        found = await reader.read()
        writer.close()
        return found


@each("name", ["api.qs.localhost", "8000-i0abc.qs.localhost", "qs.localhost"])
async def test_names_below_the_domain_are_vouched_for(tmp_path: Path, name: str) -> None:
    certificates = Certificates(tmp_path)
    assert await _hello(certificates, name, certificates.require_authority()) == b"hello"


async def test_other_names_and_other_authorities_are_not(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "a")
    for name in ("localhost", "example.org", "a.b.qs.localhost"):
        with pytest.raises(ssl.SSLCertVerificationError):
            await _hello(certificates, name, certificates.require_authority())
    other = Certificates(tmp_path / "b").require_authority()
    with pytest.raises(ssl.SSLCertVerificationError):
        await _hello(certificates, "qs.localhost", other)


def test_the_authority_can_vouch_for_nothing_else(tmp_path: Path) -> None:
    path = Certificates(tmp_path).require_authority()
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert found.critical
    assert found.value.permitted_subtrees == [x509.DNSName("qs.localhost")]
    assert b"PRIVATE" not in path.read_bytes()


def test_keys_are_private_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path)
    certificates.context()
    place = tmp_path / "tls"
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    Certificates(tmp_path).context()

    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.iterdir())
    monkeypatch.setattr(tls, "RENEW_DAYS", tls.SERVER_DAYS + 1)
    Certificates(tmp_path).context()
    after = {path.name: path.read_bytes() for path in place.iterdir()}
    assert after["ca.pem"] == before["ca.pem"]
    assert after["server.pem"] != before["server.pem"]
    leaf = x509.load_pem_x509_certificate(after["server.pem"])
    assert leaf.not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)


def test_a_damaged_file_is_told_and_left(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.require_authority()
    (tmp_path / "tls" / "ca-key.pem").write_text("damaged")
    with pytest.raises(PathError):
        Certificates(tmp_path).context()
    assert (tmp_path / "tls" / "ca-key.pem").read_text() == "damaged"
