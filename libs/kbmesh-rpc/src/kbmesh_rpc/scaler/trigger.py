"""What a ScaledObject's trigger says: its scalerMetadata, checked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbmesh_rpc.errors import FieldViolation, InvalidField, shown

TARGET_KEY = "targetTokens"
ACTIVATION_KEY = "activationTokens"
PEERS_KEY = "peers"
OWN_KEYS = (TARGET_KEY, ACTIVATION_KEY, PEERS_KEY)
KEDA_KEYS = frozenset(
    {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsCertFile", "tlsClientCert", "tlsClientKey"}
)
"""Keys of the same map that KEDA reads for itself: it hands the whole trigger on."""
MAX_PORT = 65535
_NO_HOSTS = "/,;@?#"
"""Marks that no name of a host has, whatever stands around them."""


@dataclass(frozen=True, kw_only=True)
class Peers:
    """A name behind which every replica of a service stands."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class AllowedPeers:
    """Which names a trigger may ask for. A scaler that dialled any name would be a way into the network."""

    listed: tuple[Peers, ...]
    """From the server's settings. The first is meant where a trigger names none."""
    any_name: bool
    """Whether a trigger may name others: only where nobody but this machine can call."""


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """What is to be scaled, and by what."""

    target_tokens: float
    """Tokens that one replica should have, waiting and running."""
    activation_tokens: float
    """There is work where there are more tokens than this."""
    peers: Peers


def parse_peers(text: str) -> Peers:
    """`host:port`. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= MAX_PORT:
        raise ValueError(f"must be host:port, is {shown(text)}")
    if any(character.isspace() or character in _NO_HOSTS for character in host):
        raise ValueError(f"must be one host:port without a scheme, is {shown(text)}")
    return Peers(host=host, port=int(port))


def parse_peers_list(text: str) -> tuple[Peers, ...]:
    """Comma-separated `host:port`. Raises ValueError."""
    return tuple(parse_peers(part) for part in text.split(",") if part.strip())


def parse_trigger(metadata: Mapping[str, str], allowed: AllowedPeers) -> Trigger:
    """The trigger of a ScaledObject. Raises one InvalidField that names every key that is wrong."""
    violations = [
        _violation(key, f"there is no such key; there are {', '.join(OWN_KEYS)}")
        for key in sorted(set(metadata) - set(OWN_KEYS) - KEDA_KEYS)
    ]
    target = _number(metadata, TARGET_KEY, violations, least_is_allowed=False)
    activation = _number(metadata, ACTIVATION_KEY, violations, default="0", least_is_allowed=True)
    peers = _peers(metadata.get(PEERS_KEY, ""), allowed, violations)
    if violations or peers is None:
        raise InvalidField.of(violations)
    return Trigger(target_tokens=target, activation_tokens=activation, peers=peers)


def _number(
    metadata: Mapping[str, str],
    key: str,
    violations: list[FieldViolation],
    *,
    default: str | None = None,
    least_is_allowed: bool,
) -> float:
    text = metadata.get(key, default)
    if text is None:
        violations.append(_violation(key, "is needed: the tokens that one replica should have"))
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not least_is_allowed):
        least = "a number of at least 0" if least_is_allowed else "a number above 0"
        violations.append(_violation(key, f"must be {least}, is {shown(text)}"))
    return number


def _peers(text: str, allowed: AllowedPeers, violations: list[FieldViolation]) -> Peers | None:
    if not text.strip():
        if allowed.listed:
            return allowed.listed[0]
        violations.append(
            _violation(PEERS_KEY, "is needed where KBMESH_SCALER_PEERS is unset: one replica sees only its own queue")
        )
        return None
    try:
        peers = parse_peers(text)
    except ValueError as error:
        violations.append(_violation(PEERS_KEY, str(error)))
        return None
    if peers not in allowed.listed and not allowed.any_name:
        violations.append(_violation(PEERS_KEY, f"{peers} is not in KBMESH_SCALER_PEERS: {_names(allowed.listed)}"))
        return None
    return peers


def _names(peers: Sequence[Peers]) -> str:
    return ", ".join(map(str, peers)) or "none"


def _violation(key: str, description: str) -> FieldViolation:
    return FieldViolation(field=f"scalerMetadata[{key}]", description=description)
