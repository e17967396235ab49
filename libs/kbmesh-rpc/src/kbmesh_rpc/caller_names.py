"""Who a caller is by its certificate, and what it may do here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import PermissionDenied

NAMES_SHOWN = 3
_KINDS = ("peer_dns", "peer_uri", "peer_ip")
"""Properties of gRPC's auth context with the names of a certificate that was checked. Mail addresses are not among
them: an authority that signs them may let people choose them."""
_PATTERN = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?[!-+\--~]+", re.IGNORECASE)


def names_of(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The names in the certificate that a caller has shown, as `context.auth_context()` has them: DNS names, URIs such
    as SPIFFE ids, and addresses. Empty where it has shown none."""
    return tuple(name.decode("utf-8", "replace") for kind in _KINDS for name in auth_context.get(kind, ()))


def parse_names(text: str) -> tuple[str, ...]:
    """Comma-separated names. Raises ValueError for one that no certificate could match."""
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    for name in names:
        if not _PATTERN.fullmatch(name):
            raise ValueError(f"{name!r} is no DNS name or URI")
        body = name[2:] if name.startswith("*.") else name.removesuffix("/*")
        if not body or "*" in body or (name.endswith("/*") and "://" not in name):
            raise ValueError(f"{name!r}: * may stand for the first label of a DNS name, or for the end of a URI's path")
    return names


def matches(name: str, pattern: str) -> bool:
    """Whether a certificate's name is meant by a setting: equal, `*.agents.svc` for one label, or
    `spiffe://cluster.local/ns/agents/*` for everything below. Hosts are compared without case, paths with it."""
    if "://" in pattern:
        if "://" not in name:
            return False
        name, pattern = _lower_host(name), _lower_host(pattern)
        if pattern.endswith("/*"):
            return name.startswith(pattern[:-1]) and len(name) > len(pattern) - 1
        return name == pattern
    name, pattern = name.lower(), pattern.lower()
    if pattern.startswith("*."):
        label, dot, rest = name.partition(".")
        return bool(label and dot) and label != "*" and rest == pattern[2:]
    return name == pattern


@dataclass(frozen=True, kw_only=True)
class CallerPolicy:
    """What callers may do, by the names in their certificates."""

    allowed: Sequence[str] = ()
    """Who may call, as patterns. Empty: everybody who got as far as calling."""
    trusted: Sequence[str] = ()
    """Who may call and say for which tenant and principals."""
    trusts_everybody: bool = False
    """Whether every caller may say that."""

    @property
    def asks(self) -> bool:
        """Whether names matter at all."""
        return bool(self.allowed or self.trusted)

    def refusal(self, names: Sequence[str]) -> PermissionDenied | None:
        """Why a caller of these names may not call. Tells it its own names, and nobody else's."""
        if not self.allowed or _any_matches(names, self.allowed) or _any_matches(names, self.trusted):
            return None
        shown = ", ".join(names[:NAMES_SHOWN]) or "no name"
        return PermissionDenied(f"this service takes no calls from a certificate of {shown}")

    def trusts(self, names: Sequence[str]) -> bool:
        """Whether tenant and principals are taken from the metadata of a caller of these names."""
        return self.trusts_everybody or _any_matches(names, self.trusted)


def _any_matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(matches(name, pattern) for name in names for pattern in patterns)


def _lower_host(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}"
