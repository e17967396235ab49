"""The certificate, key and authorities of this process, read from disk, and read anew when they change there.

Whoever renews them (cert-manager, SPIFFE's agent, an operator) writes files; nothing has to be restarted or told. Files
that are half written or do not belong together are left alone until they do: what was read before stays in use.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast
from weakref import WeakSet, WeakValueDictionary

import grpc
from prometheus_client import Counter, Gauge

from kbmesh_rpc.certificate_expiry import certificates_in, expiry_of
from kbmesh_rpc.logs import get_logger

logger = get_logger(__name__)

EXPIRY = Gauge(
    "kbmesh_tls_certificate_expiry_timestamp_seconds",
    "When the certificate in use, or one of its chain, ceases to be valid, in Unix seconds; by the file it is in.",
    ("file",),
)
RELOADS = Counter("kbmesh_tls_reloads_total", "Times that changed certificate files were taken into use.")
RELOAD_FAILURES = Counter(
    "kbmesh_tls_reload_failures_total",
    "Times that certificate files were looked at and could not be used, so that the ones before stayed in use.",
)

_ATTEMPTS = 3


class CertificateFilesError(Exception):
    """The files cannot be used. Says which and why, and nothing of what they hold."""


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """Where they are, in PEM."""

    certificate: Path | None
    """This process's certificate, followed by those between it and the authority."""
    key: Path | None
    """Its private key, without a password."""
    authorities: Path | None
    """Certificates of the authorities that the other side's certificate must come from."""


@dataclass(frozen=True, kw_only=True)
class Pems:
    """What the files held at one moment, all of the same moment."""

    certificate: bytes | None
    key: bytes | None = field(repr=False)
    authorities: bytes | None
    expires: float
    """When the certificate ceases to be valid, in Unix seconds; 0 where there is none."""

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a client: checks the server against the authorities, and shows the certificate if it is asked for."""
        return grpc.ssl_channel_credentials(self.authorities, self.key, self.certificate)

    def server_configuration(self, *, ask_callers: bool) -> grpc.ServerCertificateConfiguration:
        """For a server, which needs certificate and key. `ask_callers` for certificates of the authorities."""
        if self.key is None or self.certificate is None:
            raise ValueError("a server needs a certificate and its key")
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], self.authorities if ask_callers else None
        )


class Follower(Protocol):
    """Somebody who uses the files and has something to do when they change."""

    async def follow(self, pems: Pems) -> None:
        """Called again and again with what is in use. Does nothing where it is used already."""
        ...


class Certificates:
    """Files and what is in use of them."""

    def __init__(self, files: CertificateFiles, *, clock: Callable[[], float] = time.time) -> None:
        """Reads them. Raises CertificateFilesError."""
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._complaint = ""
        self._followers: WeakSet[Follower] = WeakSet()
        self._pems = _read(files)
        self._tell_expiry()
        if self._expired(self._pems):
            logger.error("the certificate has expired: callers and servers will refuse it", file=str(files.certificate))

    @property
    def pems(self) -> Pems:
        """What is in use. From any thread."""
        return self._pems

    def server_credentials(self, *, require_client_certificate: bool) -> grpc.ServerCredentials:
        """For a server. Each new connection uses what is in use then; those that are open stay as they are."""
        shown = self._pems

        def changed() -> grpc.ServerCertificateConfiguration | None:
            # Called by threads of gRPC, one for each new connection.
            nonlocal shown
            now = self._pems
            if now is shown:
                return None
            shown = now
            return now.server_configuration(ask_callers=require_client_certificate)

        return grpc.dynamic_ssl_server_credentials(
            shown.server_configuration(ask_callers=require_client_certificate),
            # grpc's annotation forgets that None means no change.
            cast("Callable[[], grpc.ServerCertificateConfiguration]", changed),
            require_client_certificate,
        )

    def refresh(self) -> bool:
        """Reads the files, and takes them into use where they changed and can be used. Blocks for some milliseconds."""
        with self._lock:
            try:
                pems = _read(self._files)
                if self._expired(pems) and not self._expired(self._pems):
                    raise CertificateFilesError(f"{self._files.certificate} has expired already")
            except CertificateFilesError as error:
                RELOAD_FAILURES.inc()
                if str(error) != self._complaint:
                    logger.error("certificate files are not taken into use", cause=str(error))
                self._complaint = str(error)
                return False
            self._complaint = ""
            if pems == self._pems:
                return False
            self._pems = pems
        self._tell_expiry()
        RELOADS.inc()
        logger.info("certificate files were read anew", expires=pems.expires)
        return True

    def add(self, follower: Follower) -> None:
        """From now on it is told of changes. Kept only as long as somebody else keeps it."""
        self._followers.add(follower)

    async def refresh_all(self) -> None:
        """Refreshes, and lets followers follow."""
        await asyncio.to_thread(self.refresh)
        await asyncio.gather(*(follower.follow(self._pems) for follower in list(self._followers)))

    def _tell_expiry(self) -> None:
        if self._files.certificate is not None:
            EXPIRY.labels(str(self._files.certificate)).set(self._pems.expires)

    def _expired(self, pems: Pems) -> bool:
        return pems.certificate is not None and pems.expires <= self._clock()


_open: "WeakValueDictionary[CertificateFiles, Certificates]" = WeakValueDictionary()


def certificates_at(files: CertificateFiles) -> Certificates:
    """The one `Certificates` of these files in this process: its server and its channels change at the same time.
    Raises CertificateFilesError."""
    found = _open.get(files)
    if found is None:
        _open[files] = found = Certificates(files)
    return found


async def watch_certificates(interval_seconds: float) -> None:
    """Refreshes all that this process uses, for ever. A server does it; a program without one may."""
    while True:
        await asyncio.sleep(interval_seconds)
        for certificates in list(_open.values()):
            try:
                await certificates.refresh_all()
            except Exception:  # whatever it is, the others and the next time must not suffer
                logger.exception("certificates could not be refreshed")


def _read(files: CertificateFiles) -> Pems:
    """The files at one moment. Raises CertificateFilesError."""
    for _ in range(_ATTEMPTS):
        first = _bytes(files)
        complaint = _complaint(files, *first)
        # Kubernetes swaps all files of a mount at once, but nobody reads three files at once.
        if _bytes(files) != first:
            continue
        if complaint:
            raise CertificateFilesError(complaint)
        certificate, key, authorities = first
        expires = expiry_of(certificate) if certificate is not None else 0.0
        return Pems(certificate=certificate, key=key, authorities=authorities, expires=expires)
    raise CertificateFilesError(f"{files.certificate or files.authorities} is being written")


def _bytes(files: CertificateFiles) -> tuple[bytes | None, bytes | None, bytes | None]:
    certificate, key, authorities = (
        None if path is None else _content(path) for path in (files.certificate, files.key, files.authorities)
    )
    return certificate, key, authorities


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateFilesError(f"{path}: {error.strerror}") from error


def _complaint(
    files: CertificateFiles, certificate: bytes | None, key: bytes | None, authorities: bytes | None
) -> str | None:
    """Why they cannot be used. OpenSSL reads certificate and key from the disk once more: it takes no bytes."""
    for path, pem in ((files.certificate, certificate), (files.authorities, authorities)):
        if pem is not None:
            try:
                certificates_in(pem)
                expiry_of(pem)
            except ValueError as error:
                return f"{path}: {error}"
    if authorities is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=authorities.decode("ascii", "ignore"))
        except ssl.SSLError:
            return f"{files.authorities}: a certificate in it cannot be read"
    if files.certificate is None or files.key is None:
        return None
    if b"ENCRYPTED" in (key or b""):
        return f"{files.key}: the key has a password, which nobody here could give"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            return f"{files.key} is not the key of {files.certificate}"
        return f"{files.certificate} and {files.key} are no certificate and key in PEM"
    except (OSError, ValueError):
        return f"{files.certificate} and {files.key} cannot be read"
    return None


def _no_password() -> str:
    raise ValueError("no password")
