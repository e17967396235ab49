"""A certificate authority of one's own for tests: `Authority().issue(folder, "chunker")` writes what is mounted."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    expires: datetime


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """Files as a Secret's mount has them."""

    folder: Path

    @property
    def cert(self) -> Path:
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        return self.folder / "tls.key"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def settings(self) -> dict[str, Path]:
        """For ServerSettings."""
        return {"tls_cert": self.cert, "tls_key": self.key, "tls_ca": self.ca}

    def write(self, pair: Pair, ca: bytes) -> None:
        """Swaps all three at once, as the kubelet does: they are links through `..data`, which is replaced."""
        version = self.folder / f"..{x509.random_serial_number():x}"
        version.mkdir(parents=True)
        (version / "tls.crt").write_bytes(pair.certificate)
        (version / "tls.key").write_bytes(pair.key)
        (version / "ca.crt").write_bytes(ca)
        swapped = self.folder / "..data_tmp"
        swapped.symlink_to(version.name)
        swapped.rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key", "ca.crt"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * DAY)
            .not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    def pair(
        self,
        *names: str,
        addresses: Sequence[str] = LOOPBACK,
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
    ) -> Pair:
        """A certificate with these names: DNS names, and URIs where they have a scheme."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC).replace(microsecond=0)
        alternatives: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name) for name in names
        ]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kbmesh")]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return Pair(
            certificate=builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            expires=now + ends,
        )

    def issue(
        self,
        folder: Path,
        *names: str,
        addresses: Sequence[str] = LOOPBACK,
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        trusts: bytes | None = None,
    ) -> Mounted:
        """Writes a new certificate with its key, and the authorities that its owner trusts: this one by default."""
        mounted = Mounted(folder=folder)
        pair = self.pair(*names, addresses=addresses, begins=begins, ends=ends)
        mounted.write(pair, self.pem if trusts is None else trusts)
        return mounted
