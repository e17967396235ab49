"""Where an address leads: to this machine, or over a network."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local_target(target: str) -> bool:
    """Whether a target in gRPC's name syntax (https://github.com/grpc/grpc/blob/master/doc/naming.md) stays on this
    machine: a Unix socket, or loopback addresses alone."""
    scheme, colon, rest = target.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme == "dns" and colon:
        # dns:NAME or dns://SERVER/NAME
        addresses = [rest.rpartition("/")[2]]
    elif scheme in ("ipv4", "ipv6") and colon:
        addresses = rest.removeprefix("//").lstrip("/").split(",")
    else:
        addresses = [target]
    return all(is_loopback(_host(address)) for address in addresses)


def is_local_url(url: str) -> bool:
    """Whether a URL leads to this machine. One without a host (a file, a Unix socket) does."""
    host = urlsplit(url).hostname
    return host is None or is_loopback(host)


def is_plain_url(url: str) -> bool:
    """Whether a URL of http or https is called over a network and without TLS."""
    return urlsplit(url).scheme == "http" and not is_local_url(url)


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    # Two colons and no brackets: an IPv6 address without a port.
    return address if address.count(":") > 1 else address.partition(":")[0]
