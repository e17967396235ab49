"""Where a vendor's API is: https, or this machine."""

from urllib.parse import urlsplit

from kbmesh_rpc.targets import is_loopback


def check_base_url(url: str, *, allow_plaintext: bool) -> str:
    """The URL without a slash at its end. Raises ValueError for one that is none, that holds a name, a password, a
    query or a fragment, or that would send texts and the key in the open: http leads to this machine only, unless
    `allow_plaintext` says that the network between is trusted."""
    parts = urlsplit(url)
    try:
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        port_is_one = False
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_one:
        raise ValueError("is not https://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a name or a password; a key comes from api_key_env or api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("holds a query or a fragment")
    if parts.scheme == "http" and not is_loopback(parts.hostname) and not allow_plaintext:
        raise ValueError("is not encrypted; allow_plaintext says that the network between is trusted")
    return url.rstrip("/")


def host_of(url: str) -> str:
    """HOST or HOST:PORT of a URL, in small letters."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    return f"{host}:{parts.port}" if parts.port is not None else host
