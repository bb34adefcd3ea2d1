"""Certificates for names below `qs.localhost`, from an authority of our own.

The authority is made once. It can vouch for names below that domain only, so trusting it trusts
nobody with anything else (RFC 5280, 4.2.1.10).
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from quicksand import PathError
from quicksand.extending import make_private_dir, write_word

DOMAIN = "qs.localhost"
"""The domain of all names. Clients take a wildcard below two names, and not below one."""

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
RENEW_DAYS = 30

Key = ec.EllipticCurvePrivateKey


class Certificates:
    """The certificates in one directory. Methods raise PathError, DiskSpaceError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "tls"
        self.authority = self._directory / "ca.pem"
        """The certificate that clients trust."""
        self._authority_key = self._directory / "ca-key.pem"
        self._server = self._directory / "server.pem"

    def require_authority(self) -> Path:
        """Makes the authority if there is none; returns the file that clients trust."""
        self._authority()
        return self.authority

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context of a server. Its certificate is made anew before it expires."""
        if not self._is_fresh():
            self._make_server()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._server)
        except (OSError, ssl.SSLError) as error:
            raise PathError(
                f"{self._server} cannot be used: {error}", hint="remove it, and it is made anew"
            ) from error
        return context

    def _authority(self) -> tuple[x509.Certificate, Key]:
        make_private_dir(self._directory)
        if not self._authority_key.exists():
            _write(self._authority_key, *_make_authority())
        certificate, key = _read(self._authority_key)
        if not self.authority.exists():
            write_word(self.authority, _pem(certificate))
        return certificate, key

    def _is_fresh(self) -> bool:
        if not self._server.exists():
            return False
        authority, _ = self._authority()
        certificate, _ = _read(self._server)
        left = certificate.not_valid_after_utc - datetime.now(UTC)
        return certificate.issuer == authority.subject and left > timedelta(days=RENEW_DAYS)

    def _make_server(self) -> None:
        authority, authority_key = self._authority()
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(DOMAIN), x509.DNSName(f"*.{DOMAIN}")]
        certificate = (
            _begin(_named(f"*.{DOMAIN}"), authority.subject, key, SERVER_DAYS)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
            .sign(authority_key, hashes.SHA256())
        )
        _write(self._server, certificate, key)


def _make_authority() -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    # A number, which tells an authority that was made anew from the one before.
    name = _named(f"quicksand-tui, for {DOMAIN} ({x509.random_serial_number() % 10**8:08})")
    permitted = x509.NameConstraints([x509.DNSName(DOMAIN)], excluded_subtrees=None)
    usage = x509.KeyUsage(
        key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    certificate = (
        _begin(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(permitted, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _begin(subject: x509.Name, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _write(path: Path, certificate: x509.Certificate, key: Key) -> None:
    """Writes both to one file, so that the certificate always fits the key."""
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_word(path, private.decode() + _pem(certificate))


def _read(path: Path) -> tuple[x509.Certificate, Key]:
    try:
        data = path.read_bytes()
        key = serialization.load_pem_private_key(data, password=None)
        certificate = x509.load_pem_x509_certificate(data)
    except (OSError, ValueError) as error:
        raise PathError(f"{path} cannot be read: {error}", hint="remove it") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PathError(f"{path} has a key of another kind", hint="remove it")
    return certificate, key
