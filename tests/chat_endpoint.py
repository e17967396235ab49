"""A small HTTP server that speaks the chat completions API, for tests of what asks a language model."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ChatEndpoint:
    """What it answers, and what it was asked."""

    url: str = ""
    content: str = "{}"
    """The message's content."""
    answer: Callable[[dict[str, Any]], str] | None = None
    """Gives the message's content for a request, in place of `content`."""
    status: int = 200
    statuses: list[int] = field(default_factory=list)
    """Those of the next answers, before `status`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each answer."""
    delay_seconds: float = 0.0
    body: bytes | None = None
    """The whole answer, in place of a well-formed one."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)


@contextmanager
def chat_endpoint() -> Iterator[ChatEndpoint]:
    """A running endpoint on loopback; change its fields between questions."""
    endpoint = ChatEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.requests.append({"path": self.path, **json.loads(asked)})
            endpoint.authorizations.append(self.headers.get("Authorization"))
            time.sleep(endpoint.delay_seconds)
            content = endpoint.content if endpoint.answer is None else endpoint.answer(json.loads(asked))
            answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}
            body = json.dumps(answer).encode() if endpoint.body is None else endpoint.body
            self.send_response(endpoint.statuses.pop(0) if endpoint.statuses else endpoint.status)
            self.send_header("Content-Type", "application/json")
            for name, value in endpoint.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
