"""What a person opens to see a source: its URI, or for an object of S3 a presigned URL."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Self

from kbmesh_rpc.errors import FeatureUnsupported

_S3 = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_EXPRESS = "--x-s3"
"""End of the names of directory buckets. Presigning for those asks S3 for a session first."""
_TENANT = "{tenant}"
_RUN_BY_BROWSERS = ("javascript:", "data:", "vbscript:")
_LOGGERS = ("boto3", "botocore")


def link_of(uri: str) -> str:
    """The URI as a link: nothing for one that a browser would run."""
    # Browsers leave out what is no visible character.
    scheme = "".join(sign for sign in uri[:64] if sign > " ").lower()
    return "" if scheme.startswith(_RUN_BY_BROWSERS) else uri


@dataclass(frozen=True, kw_only=True)
class PresignedLink:
    """A URL that needs no credentials. Never to be logged."""

    url: str = field(repr=False)
    expires_at: datetime
    """UTC."""


@dataclass(frozen=True, kw_only=True)
class _Allowed:
    bucket: str
    prefix: str
    """Empty, or ended by a slash."""

    def has(self, bucket: str, key: str, tenant: str) -> bool:
        if bucket != self.bucket:
            return False
        if _TENANT not in self.prefix:
            return key.startswith(self.prefix)
        return bool(tenant) and "/" not in tenant and key.startswith(self.prefix.replace(_TENANT, tenant))


class S3Links:
    """Presigns URLs for the objects that it is allowed to: local arithmetic with the credentials it was given, never a
    call."""

    def __init__(
        self,
        client: Any,
        allowed: Sequence[_Allowed],
        *,
        seconds: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`client` is boto3's for S3."""
        self._client = client
        self._allowed = allowed
        self._seconds = seconds
        self._clock = clock

    @classmethod
    def connect(
        cls,
        *,
        buckets: str,
        access_key_id: str,
        secret_access_key: str,
        session_token: str = "",
        region: str = "us-east-1",
        endpoint_url: str = "",
        seconds: int = 3600,
    ) -> Self | None:
        """None where no buckets or no credentials are configured. `buckets` are BUCKET or BUCKET/PREFIX, separated by
        commas, where {tenant} in a prefix stands for the tenant who asks. Raises ValueError for what is no bucket, and
        FeatureUnsupported where the SDK is not installed."""
        allowed = [_read_allowed(entry) for entry in map(str.strip, buckets.split(",")) if entry]
        if not (allowed and access_key_id and secret_access_key):
            return None
        try:
            boto3, config = import_module("boto3"), import_module("botocore.config")
        except ImportError as error:
            raise FeatureUnsupported("s3_buckets: install kbmesh-retriever[s3]") from error
        for name in _LOGGERS:
            # At DEBUG they log signatures.
            logging.getLogger(name).setLevel(logging.INFO)
        client = boto3.session.Session(
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            aws_session_token=session_token or None,
            region_name=region,
        ).client(
            "s3",
            endpoint_url=endpoint_url or None,
            # Other servers than Amazon's have no host name for each bucket.
            config=config.Config(
                signature_version="s3v4", s3={"addressing_style": "path" if endpoint_url else "virtual"}
            ),
        )
        return cls(client, allowed, seconds=seconds)

    def may_sign(self, uri: str, *, tenant: str) -> bool:
        """Whether there is a presigned link for the URI to somebody of the tenant."""
        return self._object_of(uri, tenant) is not None

    def sign(self, uri: str, *, tenant: str) -> PresignedLink | None:
        """A link to read the object; None for any other URI. Takes the processor for some tenths of a millisecond."""
        found = self._object_of(uri, tenant)
        if found is None:
            return None
        bucket, key = found
        # The SDK takes its own time a moment later: what is told is never too late.
        expires_at = self._clock().replace(microsecond=0) + timedelta(seconds=self._seconds)
        url = self._client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=self._seconds
        )
        return PresignedLink(url=url, expires_at=expires_at)

    def _object_of(self, uri: str, tenant: str) -> tuple[str, str] | None:
        if not uri.startswith(_S3):
            return None
        bucket, _, key = uri.removeprefix(_S3).partition("/")
        # Clients take dots in a path for folders, and would ask for another object.
        is_plain = bool(key) and not {".", ".."} & set(key.split("/"))
        return (bucket, key) if is_plain and any(one.has(bucket, key, tenant) for one in self._allowed) else None


def _read_allowed(entry: str) -> _Allowed:
    bucket, _, prefix = entry.partition("/")
    if not _BUCKET.fullmatch(bucket) or bucket.endswith(_EXPRESS):
        raise ValueError(f"s3_buckets: {entry!r} is not BUCKET or BUCKET/PREFIX of a general purpose bucket")
    return _Allowed(bucket=bucket, prefix=f"{prefix.rstrip('/')}/" if prefix.strip("/") else "")
