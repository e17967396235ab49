"""TLS by files, which are read anew when they change."""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import grpc

logger = logging.getLogger("kbmesh_client")

LOOK_SECONDS = 10.0
"""How often the files are looked at, by a call that is made anyway."""
_ATTEMPTS = 3

Options = list[tuple[str, str | int]]


class TlsFilesError(ValueError):
    """The files cannot be used. Says which and why, and nothing of what they hold."""


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """How the mesh is trusted, and who the client is. All files are PEM.

    When they change, new calls go over a new connection; calls in flight stay where they are. Files that are half
    written, or a key that is not the certificate's, are left alone until they fit.
    """

    ca: str | PathLike[str] | None = None
    """The authorities that servers' certificates may come from. None: the public ones."""
    cert: str | PathLike[str] | None = None
    """This client's certificate, followed by those between it and the authority, for servers that ask for one."""
    key: str | PathLike[str] | None = None
    """Its private key, without a password."""
    server_name: str = ""
    """The name that servers' certificates carry, where it is not the host of the endpoint."""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: one of them is missing")


@dataclass(frozen=True, kw_only=True)
class Pems:
    """What the files held at one moment."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None = field(repr=False)

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)


class FollowedFiles:
    """Files, and what was last read of them that can be used. Thread-safe."""

    def __init__(self, files: TlsFiles, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads them. Raises TlsFilesError."""
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._pems = read_files(files)
        self._looked = clock()
        self._complaint = ""

    def latest(self) -> Pems:
        """What to use now. Looks at the files where that was some time ago; takes some hundred microseconds then."""
        with self._lock:
            if self._clock() - self._looked >= LOOK_SECONDS:
                self._looked = self._clock()
                try:
                    pems = read_files(self._files)
                except TlsFilesError as error:
                    if str(error) != self._complaint:
                        logger.warning("the files of TLS cannot be used; those before stay in use: %s", error)
                    self._complaint = str(error)
                else:
                    self._complaint = ""
                    if pems != self._pems:
                        self._pems = pems
            return self._pems


def read_files(files: TlsFiles) -> Pems:
    """The files, all of the same moment. Raises TlsFilesError."""
    for _ in range(_ATTEMPTS):
        pems = _bytes(files)
        complaint = _complaint(files, pems)
        # All files of a mount may be swapped at once, but nobody reads three files at once.
        if _bytes(files) == pems:
            if complaint:
                raise TlsFilesError(complaint)
            return pems
    raise TlsFilesError(f"{files.cert or files.ca} is being written")


def _bytes(files: TlsFiles) -> Pems:
    ca, cert, key = (None if path is None else _content(Path(path)) for path in (files.ca, files.cert, files.key))
    return Pems(ca=ca, cert=cert, key=key)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsFilesError(f"{path}: {error.strerror}") from error


def _complaint(files: TlsFiles, pems: Pems) -> str | None:
    """Why they cannot be used. OpenSSL reads certificate and key from the disk once more: it takes no bytes."""
    for path, pem in ((files.cert, pems.cert), (files.ca, pems.ca)):
        if pem is not None and not 0 < pem.count(b"-----BEGIN CERT") == pem.count(b"-----END CERT"):
            return f"{path}: there is no certificate in it, or one that is broken off"
    try:
        if pems.ca is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pems.ca.decode("ascii", "ignore"))
    except ssl.SSLError:
        return f"{files.ca}: a certificate in it cannot be read"
    if files.cert is None or files.key is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(files.cert, files.key, password=_no_password)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            return f"{files.key} is not the key of {files.cert}"
        return f"{files.cert} and {files.key} are no certificate and key in PEM"
    except (OSError, ValueError):
        return f"{files.key} cannot be read, or has a password"
    return None


def _no_password() -> str:
    raise ValueError("no password")
