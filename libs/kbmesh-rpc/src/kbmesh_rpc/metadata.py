"""What a call carries beside its message: request id, tenant and principals, as gRPC metadata."""

import re
import uuid
from collections.abc import Iterable, Sequence

from kbmesh_rpc.call import DEFAULT_TENANT
from kbmesh_rpc.errors import InvalidField, Unauthenticated

REQUEST_ID_KEY = "kbmesh-request-id"
TENANT_KEY = "kbmesh-tenant"
PRINCIPALS_KEY = "kbmesh-principals"

MAX_PRINCIPALS = 256

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PRINCIPAL = re.compile(r"[!-+\--~]{1,256}")  # visible ASCII but the comma

Metadata = Iterable[tuple[str, str | bytes]]


def new_request_id() -> str:
    """A request id that nobody has."""
    return str(uuid.uuid4())


def request_id_of(metadata: Metadata) -> str | None:
    """The caller's request id, or None where there is none that is safe to log and pass on."""
    values = _values(metadata, REQUEST_ID_KEY)
    return values[0] if len(values) == 1 and _REQUEST_ID.fullmatch(values[0]) else None


def caller_of(metadata: Metadata, *, trusted: bool) -> tuple[str, tuple[str, ...]]:
    """Tenant and principals of the caller.

    Raises Unauthenticated where a caller names them and the server does not trust that (to ignore it would serve the
    caller another tenant's view), and InvalidField where they are malformed. The default tenant may be named by
    everybody: who names none is served as it."""
    tenants = _values(metadata, TENANT_KEY)
    principals = _values(metadata, PRINCIPALS_KEY)
    if not trusted and (principals or any(tenant != DEFAULT_TENANT for tenant in tenants)):
        raise Unauthenticated(f"this server does not take {TENANT_KEY} and {PRINCIPALS_KEY} from a call's metadata")
    if len(tenants) > 1:
        raise InvalidField(TENANT_KEY, "may be given once")
    tenant = tenants[0] if tenants else DEFAULT_TENANT
    if not _TENANT.fullmatch(tenant):
        raise InvalidField(TENANT_KEY, "must be 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit")
    return tenant, _principals(principals)


def is_principal(name: str) -> bool:
    """Whether a caller can come under this name."""
    return _PRINCIPAL.fullmatch(name) is not None


def _principals(values: Sequence[str]) -> tuple[str, ...]:
    principals = [principal.strip() for value in values for principal in value.split(",") if principal.strip()]
    if len(principals) > MAX_PRINCIPALS:
        raise InvalidField(PRINCIPALS_KEY, f"holds {len(principals)} names, the limit is {MAX_PRINCIPALS}")
    if not all(map(is_principal, principals)):
        raise InvalidField(PRINCIPALS_KEY, "a name must be 1 to 256 visible ASCII characters")
    return tuple(dict.fromkeys(principals))


def _values(metadata: Metadata, wanted: str) -> list[str]:
    return [value for key, value in metadata if key == wanted and isinstance(value, str)]
