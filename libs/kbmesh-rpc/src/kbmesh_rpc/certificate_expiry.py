"""Until when a certificate is valid. Python's ssl tells that only of a peer, so the few bytes are read here."""

import ssl
from datetime import UTC, datetime

_SEQUENCE, _EXPLICIT_0, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
BEGIN = "-----BEGIN CERTIFICATE-----"
END = "-----END CERTIFICATE-----"


def expiry_of(pem: bytes) -> float:
    """When the first of the certificates in a PEM file ceases to be valid, in Unix seconds.

    Raises ValueError where the file holds none, or one that is broken off or cannot be read."""
    return min(_not_after(der) for der in certificates_in(pem))


def certificates_in(pem: bytes) -> list[bytes]:
    """The DER of each certificate of a PEM file, of which there is at least one. Raises ValueError."""
    text = pem.decode("utf-8", errors="replace")
    blocks = [block.partition(END) for block in text.split(BEGIN)[1:]]
    if not blocks:
        raise ValueError("there is no certificate in it")
    if not all(end for _, end, _ in blocks):
        raise ValueError("a certificate in it is broken off")
    return [ssl.PEM_cert_to_DER_cert(f"{BEGIN}{body}{END}") for body, _, _ in blocks]


def _not_after(der: bytes) -> float:
    # Certificate, tbsCertificate, [0] version, serialNumber, signature, issuer, validity: RFC 5280, section 4.1.
    try:
        _, certificate, _ = _element(der, _SEQUENCE)
        _, fields, _ = _element(certificate, _SEQUENCE)
        if fields[0] == _EXPLICIT_0:
            _, _, fields = _element(fields)
        for _ in ("serialNumber", "signature", "issuer"):
            _, _, fields = _element(fields)
        _, validity, _ = _element(fields, _SEQUENCE)
        _, _, rest = _element(validity)
        kind, moment, _ = _element(rest)
        return _seconds(kind, moment.decode("ascii"))
    except IndexError as error:
        raise ValueError("a certificate in it cannot be read") from error


def _seconds(kind: int, moment: str) -> float:
    if kind == _UTC_TIME:
        # Two digits of the year: 50 and more are of the last century (RFC 5280, section 4.1.2.5.1).
        moment = ("19" if int(moment[:2]) >= 50 else "20") + moment
    elif kind != _GENERALIZED_TIME:
        raise ValueError("a certificate in it has no time of expiry")
    return datetime.strptime(moment, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(data: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """The first element of DER: its tag, what it holds, and what comes after it."""
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if wanted is not None and tag != wanted:
        raise ValueError("a certificate in it cannot be read")
    if len(data) < start + length:
        raise ValueError("a certificate in it cannot be read")
    return tag, data[start : start + length], data[start + length :]
