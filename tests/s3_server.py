"""An S3 server for tests: moto's, behind a check of presigned URLs that it does not make itself.

The check is written from Amazon's description of Signature Version 4 with query parameters, and shares no code with the
SDK that signs.
"""

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

ACCESS_KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION = "eu-central-1"

Start = Callable[..., Any]


@dataclass
class S3Server:
    """Where it is, and what time it takes it to be."""

    url: str = ""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    requests: list[str] = field(default_factory=list)
    """Method and path of each."""


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server on loopback, which keeps objects in memory."""
    server = S3Server()
    inner = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        server.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if "X-Amz-Signature=" in environ["QUERY_STRING"] and (refusal := _refusal(environ, server.now())):
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [refusal.encode()]
        answer: Iterable[bytes] = inner(environ, start_response)
        return answer

    running = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{running.server_port}"
    try:
        yield server
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


class _Silent(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """Says nothing."""


def _refusal(environ: dict[str, Any], now: datetime) -> str:
    """Why a presigned request is refused; empty where it is not."""
    parameters = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
    signature = parameters.pop("X-Amz-Signature")
    signed_at = datetime.strptime(parameters["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if now > signed_at + timedelta(seconds=int(parameters["X-Amz-Expires"])):
        return "Request has expired"
    key_id, day, region, service, _ = parameters["X-Amz-Credential"].split("/")
    if (key_id, region, service) != (ACCESS_KEY_ID, REGION, "s3"):
        return "InvalidAccessKeyId"
    query = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(parameters.items()))
    names = parameters["X-Amz-SignedHeaders"].split(";")
    headers = {name: environ[f"HTTP_{name.upper().replace('-', '_')}"] for name in names}
    canonical = "\n".join(
        [
            environ["REQUEST_METHOD"],
            quote(environ["PATH_INFO"].encode("latin-1"), safe="/~"),
            query,
            *(f"{name}:{value.strip()}" for name, value in sorted(headers.items())),
            "",
            parameters["X-Amz-SignedHeaders"],
            "UNSIGNED-PAYLOAD",
        ]
    )
    scope = f"{day}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", parameters["X-Amz-Date"], scope, digest])
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.new(key, text.encode(), "sha256").hexdigest()
    return "" if hmac.compare_digest(expected, signature) else "SignatureDoesNotMatch"


def _encoded(text: str) -> str:
    return quote(text, safe="~")
