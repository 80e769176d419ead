"""Certificates for tests: a CA, and what it issues, as files."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_NUMBERS: Final = itertools.count(1)
SERVER_NAMES: Final = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key; ``serial`` is the certificate's number."""

    certificate: Path
    key: Path
    serial: int

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.certificate, self.key


@dataclass
class Authority:
    """A CA, whose own certificate is in ``file``."""

    folder: Path
    name: str = "tests"
    _key: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        builder = _builder(self.name, self.name, self._key, days=10).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(*(name in ("cert", "crl") for name in _USES))
        self._own = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(self._own.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str = "server",
        names: Sequence[str] = SERVER_NAMES,
        uris: Sequence[str] = (),
        days: int = 2,
        is_rsa: bool = False,
        password: bytes | None = None,
        folder: Path | None = None,
    ) -> Pair:
        """A certificate for a server or a client, as ``tls.crt`` and ``tls.key`` in a folder of its own."""
        key: PrivateKey = (
            rsa.generate_private_key(65_537, 2_048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        )
        builder = _builder(name, self.name, key, days)
        alternatives = [*map(_general_name, names), *map(x509.UniformResourceIdentifier, uris)]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        folder = folder or self.folder / f"{name}-{signed.serial_number}"
        folder.mkdir(parents=True)
        encryption: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        pair = Pair(folder / "tls.crt", folder / "tls.key", signed.serial_number)
        pair.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return pair


class MountedSecret:
    """A folder as Kubernetes mounts a secret: its files are links by way of a link that is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        for path in (self.certificate, self.key):
            path.symlink_to(Path("..data") / path.name)

    def show(self, certificate: Path, key: Path) -> None:
        """Replaces both files at once."""
        version = self._folder / f"..{next(_NUMBERS)}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate.read_bytes())
        (version / "tls.key").write_bytes(key.read_bytes())
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self._folder / "..data")


_USES: Final = ("signature", "commitment", "key", "data", "agreement", "cert", "crl", "encipher", "decipher")


def _builder(name: str, issuer: str, key: PrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begin = now - timedelta(days=1) + min(timedelta(), timedelta(days=days - 1))
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(next(_NUMBERS))
        .not_valid_before(begin)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
