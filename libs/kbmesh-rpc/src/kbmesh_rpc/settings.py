"""Settings of a server: environment over YAML file over defaults, read once, checked and frozen."""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

from kbmesh_rpc.caller_names import CallerPolicy, parse_names
from kbmesh_rpc.targets import is_local_target, is_plain_url
from kbmesh_rpc.targets import is_loopback as is_loopback

ENV_PREFIX = "KBMESH_"
MEBIBYTE = 1024 * 1024


class ServerSettings(BaseSettings):
    """What every kbmesh server can be told. Services add fields in a subclass; a field's docstring is its help."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on. Anything but a loopback address lets other machines in."""
    port: int
    """Port of the gRPC server. 0 takes a free one."""
    metrics_port: int = 0
    """Port of the Prometheus metrics, on the same host. 0 is off."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""
    log_format: Literal["json", "console"] = "json"
    """json is one object a line; console is for people."""
    grace_seconds: float = Field(default=10.0, ge=0)
    """How long calls in flight may take to finish after SIGTERM."""
    default_deadline_seconds: float = Field(default=10.0, gt=0)
    """Deadline of a unary call whose caller set none."""
    max_message_bytes: int = Field(default=64 * MEBIBYTE, ge=1024, le=2**31 - 1)
    """Largest message that is received or sent, in bytes."""
    max_connection_age_seconds: int = Field(default=0, ge=0)
    """Age at which a connection is asked to close, so that callers find new replicas. 0 is never."""
    otlp_endpoint: str = ""
    """OTLP gRPC endpoint for traces, such as http://localhost:4317. Empty is off; needs the extra kbmesh-rpc[otlp]."""
    trust_tenant_metadata: bool | None = None
    """Whether kbmesh-tenant and kbmesh-principals are taken from every call's metadata. Unset: on loopback only, and
    there too not where `tls_trusted_callers` says whose are."""

    tls_cert: Path | None = None
    """PEM file of this process's certificate, those between it and the authority after it. With it the server speaks
    TLS and nothing else; services that it calls see it too. Read anew when it changes. Unset: plain text."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key, without a password."""
    tls_ca: Path | None = None
    """PEM file of the authorities of the mesh. With it every other service is called by TLS, and its certificate must
    come from one of them and carry the name in its address; callers must show one of theirs too (mutual TLS)."""
    tls_require_client_cert: bool = True
    """Whether callers must show a certificate from `tls_ca`. Without `tls_ca` nobody is asked for one."""
    tls_allowed_callers: str = ""
    """Who may call: names in callers' certificates (DNS names, or URIs such as SPIFFE ids), separated by commas.
    *.agents.svc is any first label, spiffe://cluster.local/ns/agents/* any path below. Unset: every certificate from
    `tls_ca`."""
    tls_trusted_callers: str = ""
    """Who may call and name tenant and principals in a call's metadata: names as in `tls_allowed_callers`."""
    tls_reload_seconds: float = Field(default=10.0, gt=0)
    """How often the files are looked at."""
    health_port: int = 0
    """Port on the same host that serves grpc.health.v1 in plain text and nothing else, for probes that speak no TLS. 0
    is off."""
    allow_plaintext: bool = False
    """Whether plain text may leave this machine: to callers where there is no `tls_cert`, to other services where there
    is no `tls_ca`, and to stores whose URL says so. Else the process does not start. A warning names what does."""

    _service: str = PrivateAttr(default="kbmesh")

    @field_validator("port", "metrics_port", "health_port")
    @classmethod
    def _is_port(cls, port: int) -> int:
        # A validator, because a subclass that gives its own default would lose a constraint of the field.
        if not 0 <= port <= 65535:
            raise ValueError("must be a port, 0 to 65535")
        return port

    @field_validator("tls_allowed_callers", "tls_trusted_callers")
    @classmethod
    def _names_callers(cls, names: str) -> str:
        return ",".join(parse_names(names))

    @model_validator(mode="after")
    def _tls_fits_together(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("KBMESH_TLS_CERT and KBMESH_TLS_KEY belong together: one of them is unset")
        if (self.tls_allowed_callers or self.tls_trusted_callers) and not self.asks_for_client_cert:
            raise ValueError(
                "KBMESH_TLS_ALLOWED_CALLERS and KBMESH_TLS_TRUSTED_CALLERS need callers' certificates: set "
                "KBMESH_TLS_CERT, KBMESH_TLS_KEY and KBMESH_TLS_CA"
            )
        return self

    @property
    def asks_for_client_cert(self) -> bool:
        """Whether callers must show a certificate: mutual TLS."""
        return self.tls_cert is not None and self.tls_ca is not None and self.tls_require_client_cert

    @property
    def caller_policy(self) -> CallerPolicy:
        """What callers may do, by their certificates."""
        trusted = parse_names(self.tls_trusted_callers)
        trusts_everybody = self.trust_tenant_metadata
        if trusts_everybody is None:
            trusts_everybody = is_loopback(self.host) and not trusted
        return CallerPolicy(
            allowed=parse_names(self.tls_allowed_callers), trusted=trusted, trusts_everybody=trusts_everybody
        )

    def plaintext_edges(self) -> tuple[str, ...]:
        """Connections that leave this machine in plain text, each with the setting that says so."""
        listening = (
            (f"KBMESH_HOST={self.host} without KBMESH_TLS_CERT",)
            if self.tls_cert is None and not is_loopback(self.host)
            else ()
        )
        return (*listening, *self.plaintext_calls())

    def plaintext_calls(self) -> tuple[str, ...]:
        """Those of them that this process opens. Services add theirs."""
        return ()

    def plaintext_targets(self, *fields: str) -> tuple[str, ...]:
        """Of fields that hold the address of another service, those that are called over a network and without TLS."""
        if self.tls_ca is not None:
            return ()
        named = ((field, str(getattr(self, field))) for field in fields)
        return tuple(
            f"{env_name(field)}={target} without KBMESH_TLS_CA"
            for field, target in named
            if target and not is_local_target(target)
        )

    def plaintext_urls(self, *fields: str) -> tuple[str, ...]:
        """Of fields that hold a URL, those of http on another machine."""
        named = ((field, str(getattr(self, field))) for field in fields)
        return tuple(f"{env_name(field)}={url}" for field, url in named if is_plain_url(url))

    @property
    def service(self) -> str:
        """The short name that `load_settings` was given, such as `embedder`."""
        return self._service


S = TypeVar("S", bound=ServerSettings)


def load_settings(cls: type[S], *, service: str, argv: Sequence[str] | None = None) -> S:
    """The settings of this process. `--help` and `--print-settings` print and exit.

    The environment (KBMESH_<FIELD>) wins over the file of `--config`, which wins over the defaults. On a bad value the
    process exits with 2 and names the environment variable or the file's key.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m kbmesh_{service}",
        description=(cls.__doc__ or "").strip(),
        epilog=_table(cls),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="YAML file of settings; its keys are the fields")
    parser.add_argument("--print-settings", action="store_true", help="print the settings as YAML, secrets hidden")
    arguments = parser.parse_args(argv)
    settings = _load(cls, arguments.config)
    settings._service = service
    if arguments.print_settings:
        sys.stdout.write(to_yaml(settings))
        sys.exit(0)
    return settings


def to_yaml(settings: ServerSettings) -> str:
    """The settings as a file for `--config`, secrets shown as asterisks."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def env_name(field: str) -> str:
    """The environment variable of a field."""
    return ENV_PREFIX + field.upper()


def _load(cls: type[S], path: Path | None) -> S:
    from_file = _read_file(cls, path) if path is not None else {}
    try:
        from_environment: dict[str, Any] = EnvSettingsSource(cls)()
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        name = env_name(field.group(1)) if field else "environment"
        _exit([f"{name}: not valid JSON, which this setting needs"])
    try:
        return cls(**{**from_file, **from_environment})
    except ValidationError as error:
        _exit(_complaints(error, from_environment, path))


def _read_file(cls: type[ServerSettings], path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        _exit([f"{path}: {error.strerror}"])
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        _exit([f"{path}: not YAML: {' '.join(str(error).split())}"])
    if content is None:
        return {}
    if not isinstance(content, dict):
        _exit([f"{path}: must hold keys and values"])
    unknown = [str(key) for key in content if key not in cls.model_fields]
    if unknown:
        _exit([f"{path}: {key}: there is no such setting" for key in unknown])
    return content


def _complaints(error: ValidationError, from_environment: dict[str, Any], path: Path | None) -> Iterable[str]:
    for problem in error.errors(include_url=False, include_input=False):
        location = [str(part) for part in problem["loc"]]
        if not location:
            yield problem["msg"]
            continue
        field, inner = location[0], "".join(f"[{part}]" for part in location[1:])
        name = env_name(field)
        if path is not None and field not in from_environment and problem["type"] != "missing":
            name = f"{path}: {field}"
        yield f"{name}{inner}: {problem['msg']}"


def _exit(complaints: Iterable[str]) -> NoReturn:
    sys.stderr.write("".join(f"error: {complaint}\n" for complaint in complaints))
    sys.exit(2)


def _table(cls: type[ServerSettings]) -> str:
    lines = ["settings, by environment variable:"]
    for name, field in cls.model_fields.items():
        lines.append(f"  {env_name(name)} ({_default(field)}{_choices(field)})")
        lines.extend(textwrap.wrap(_help(cls, name), width=100, initial_indent=" " * 6, subsequent_indent=" " * 6))
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, SecretStr):
        default = default.get_secret_value() and "a secret"
    if default is None or default == "":
        return "unset"
    return f"default {default}"


def _choices(field: FieldInfo) -> str:
    if get_origin(field.annotation) is not Literal:
        return ""
    return f"; one of {', '.join(str(choice) for choice in get_args(field.annotation) if choice != '')}"


def _help(cls: type[ServerSettings], name: str) -> str:
    # A subclass may give a field another default and leave its words as they are.
    parents = (parent for parent in cls.__mro__ if issubclass(parent, ServerSettings))
    fields = (parent.model_fields.get(name) for parent in parents)
    return next((field.description for field in fields if field is not None and field.description), "")
