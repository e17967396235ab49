"""A server that speaks the part of Pinecone's API (2026-07) that its official SDK uses for kbmesh: `with
pinecone_server() as server: ...`.

It is strict where the documentation is: sizes, schemas, filter operators, field names, limits. `lag` makes it slow to
show a write, as the real one is; `faults` makes it fail.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

API_KEY = "pc-test-key"
_VERSION = "2026-07"
_MAX_REQUEST_BYTES = 2_000_000
_MAX_METADATA_BYTES = 40_960
_MAX_ANSWER_BYTES = 4_000_000
_MAX_DOCUMENTS = 1_000
_MAX_TOP_K = 10_000
_MAX_FILTER_VALUES = 10_000
_INDEX_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")


class Refusal(Exception):
    """What is answered instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(kw_only=True)
class Fault:
    """One request that fails, or is slow."""

    path: str
    """A part of the request's path."""
    status: int = 0
    """0 answers as always, after the delay."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"code": "UNKNOWN", "message": "as the test wants"}, "status": 500}'
    delay_seconds: float = 0.0


@dataclass(kw_only=True)
class Namespace:
    written: int = 0
    """Log sequence number of the last write."""
    indexed: int = 0
    """And of the last that searches see."""
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    pending: list[tuple[int, Callable[[dict[str, dict[str, Any]]], None]]] = field(default_factory=list)
    reads_until_indexed: int = 0


class PineconeServer:
    """Control plane and data plane, each index at a port of its own. Searches and fetches see a write after `lag` more
    searches of its namespace."""

    def __init__(self) -> None:
        self.lag = 0
        self.forgets_lsn = False
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.indexes: dict[str, dict[str, Any]] = {}
        self._namespaces: dict[str, dict[str, Namespace]] = {}
        self._lock = threading.RLock()
        self._servers: list[ThreadingHTTPServer] = []
        self.url = self._serve(None)

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add_index(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """As the console or another program would."""
        if name in self.indexes:
            raise Refusal(409, f"Resource {name} already exists")
        if not _INDEX_NAME.fullmatch(name):
            raise Refusal(400, "Name must consist of lower case alphanumeric characters or '-'")
        self._namespaces[name] = {}
        self.indexes[name] = {
            "name": name,
            "host": self._serve(name),
            "status": {"ready": True, "state": "Ready"},
            "schema": {"fields": dict(fields)},
            "deployment": {"deployment_type": "managed", "cloud": "aws", "region": "us-east-1"},
            "deletion_protection": "disabled",
        }
        return self.indexes[name]

    def count(self, path: str) -> int:
        """Requests whose path holds `path`."""
        return sum(path in asked for _, asked in self.requests)

    def _serve(self, index: str | None) -> str:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self._answer("POST")

            def do_GET(self) -> None:
                self._answer("GET")

            def do_DELETE(self) -> None:
                self._answer("DELETE")

            def log_message(self, *_: object) -> None:
                """Says nothing."""

            def _answer(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer, headers = outer._handle(index, method, self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    def _handle(
        self, index: str | None, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes, Mapping[str, str]]:
        fault = None
        with self._lock:
            self.requests.append((method, target))
            for position, one in enumerate(self.faults):
                if one.path in target:
                    fault = self.faults.pop(position)
                    break
        if fault is not None:
            time.sleep(fault.delay_seconds)
            if fault.status:
                return fault.status, fault.body, fault.headers
        try:
            lowered = {name.lower(): value for name, value in headers.items()}
            if lowered.get("api-key") != API_KEY:
                raise Refusal(401, "Invalid API Key")
            if lowered.get("x-pinecone-api-version") != _VERSION:
                raise Refusal(400, "unknown API version")
            if len(body) > _MAX_REQUEST_BYTES:
                raise Refusal(413, "message length too large")
            path = urlsplit(target)
            parts = [unquote(part) for part in path.path.strip("/").split("/")]
            query = {name: values[-1] for name, values in parse_qs(path.query).items()}
            asked = json.loads(body) if body else {}
            with self._lock:
                if index is None:
                    return self._control(method, parts, asked)
                return self._data(index, method, parts, query, asked)
        except Refusal as refusal:
            error = {"error": {"code": "INVALID_ARGUMENT", "message": refusal.message}, "status": refusal.status}
            return refusal.status, json.dumps(error).encode(), {}

    def _control(self, method: str, parts: list[str], asked: Any) -> tuple[int, bytes, Mapping[str, str]]:
        match method, parts:
            case "GET", ["indexes"]:
                return _ok({"indexes": list(self.indexes.values())})
            case "POST", ["indexes"]:
                return _ok(self.add_index(asked["name"], asked["schema"]["fields"]), status=201)
            case "GET", ["indexes", name]:
                if name not in self.indexes:
                    raise Refusal(404, f"Resource {name} not found")
                return _ok(self.indexes[name])
        raise Refusal(404, "no such path")

    def _data(
        self, index: str, method: str, parts: list[str], query: Mapping[str, str], asked: Any
    ) -> tuple[int, bytes, Mapping[str, str]]:
        namespaces = self._namespaces[index]
        fields = self.indexes[index]["schema"]["fields"]
        match method, parts:
            case "POST", ["namespaces"]:
                if asked["name"] in namespaces:
                    raise Refusal(409, "namespace already exists")
                namespaces[asked["name"]] = Namespace()
                return _ok(_described(asked["name"], namespaces[asked["name"]]), status=201)
            case "GET", ["namespaces"]:
                names = sorted(name for name in namespaces if name.startswith(query.get("prefix", "")))
                start = int(query.get("paginationToken", 0))
                page = names[start : start + 2]
                answer: dict[str, Any] = {"namespaces": [_described(name, namespaces[name]) for name in page]}
                if start + 2 < len(names):
                    answer["pagination"] = {"next": str(start + 2)}
                return _ok(answer)
            case "GET", ["namespaces", name]:
                return _ok(_described(name, _existing(namespaces, name)))
            case "DELETE", ["namespaces", name]:
                _existing(namespaces, name)
                del namespaces[name]
                return _ok({}, status=202)
            case "POST", ["namespaces", name, "documents", verb]:
                return self._documents(verb, name, namespaces, fields, asked)
        raise Refusal(404, "no such path")

    def _documents(
        self, verb: str, name: str, namespaces: dict[str, Namespace], fields: Mapping[str, Any], asked: Any
    ) -> tuple[int, bytes, Mapping[str, str]]:
        if verb == "upsert":
            documents = asked["documents"]
            if len(documents) > _MAX_DOCUMENTS:
                raise Refusal(400, f"at most {_MAX_DOCUMENTS} documents")
            for document in documents:
                _check_document(document, fields)
            stored = {document["_id"]: document for document in documents}
            namespace = namespaces.setdefault(name, Namespace())
            return self._write(namespace, lambda kept: kept.update(stored), {"upserted_count": len(documents)}, 201)
        namespace = _existing(namespaces, name)
        if (wanted := asked.get("filter")) is not None:
            _check_filter(wanted, fields)
        match verb:
            case "update":
                for patch in asked["documents"]:
                    _check_metadata(
                        {key: value for key, value in patch.items() if key not in ("_id", "_remove_fields")}
                    )
                return self._write(namespace, lambda kept: _patch(kept, asked["documents"]), {}, 202)
            case "delete":
                matched = sum(wanted is None or _keeps(wanted, one) for one in namespace.documents.values())
                gone = set(asked.get("ids") or ())

                def delete(kept: dict[str, dict[str, Any]]) -> None:
                    for key in [
                        key
                        for key, one in kept.items()
                        if asked.get("delete_all") or key in gone or (wanted is not None and _keeps(wanted, one))
                    ]:
                        del kept[key]

                return self._write(namespace, delete, {"matched_records": matched}, 202)
            case "search":
                self._settle(namespace)
                answer = _search(name, namespace.documents, fields, asked)
                return _sized(answer, {"x-pinecone-max-indexed-lsn": str(namespace.indexed)})
            case "fetch":
                return _sized(_fetch(name, namespace.documents, asked), {})
        raise Refusal(404, "no such path")

    def _write(
        self,
        namespace: Namespace,
        change: Callable[[dict[str, dict[str, Any]]], None],
        answer: Mapping[str, Any],
        status: int,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        namespace.written += 1
        namespace.pending.append((namespace.written, change))
        namespace.reads_until_indexed = self.lag
        if self.lag == 0:
            self._settle(namespace)
        headers = {} if self.forgets_lsn else {"x-pinecone-request-lsn": str(namespace.written)}
        return status, json.dumps(answer).encode(), headers

    def _settle(self, namespace: Namespace) -> None:
        if namespace.reads_until_indexed > 0:
            namespace.reads_until_indexed -= 1
            return
        for number, change in namespace.pending:
            change(namespace.documents)
            namespace.indexed = number
        namespace.pending.clear()


@contextmanager
def pinecone_server() -> Iterator[PineconeServer]:
    server = PineconeServer()
    try:
        yield server
    finally:
        server.close()


def _ok(answer: Mapping[str, Any], *, status: int = 200) -> tuple[int, bytes, Mapping[str, str]]:
    return status, json.dumps(answer).encode(), {}


def _sized(answer: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
    encoded = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(encoded) > _MAX_ANSWER_BYTES:
        raise Refusal(400, "the result is over 4 MB")
    return 200, encoded, headers


def _existing(namespaces: Mapping[str, Namespace], name: str) -> Namespace:
    if name not in namespaces:
        raise Refusal(404, f"Namespace {name} not found")
    return namespaces[name]


def _described(name: str, namespace: Namespace) -> dict[str, Any]:
    return {"name": name, "record_count": str(len(namespace.documents)), "size_bytes": "0"}


def _check_document(document: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    if not re.fullmatch(r"[\x01-\x7f]{1,512}", document.get("_id", "")):
        raise Refusal(400, "the _id is no ASCII text of 1 to 512 characters")
    for name, kind in fields.items():
        value = document.get(name)
        if kind["type"] == "dense_vector":
            if value is None:
                raise Refusal(400, f"document {document['_id']} lacks {name}")
            if len(value) != kind["dimension"] or not all(math.isfinite(number) for number in value):
                raise Refusal(400, f"Vector dimension does not match the dimension of the index {kind['dimension']}")
            if not any(value):
                raise Refusal(400, "Dense vectors must contain at least one non-zero value.")
        elif kind["type"] == "sparse_vector" and value is not None:
            _check_sparse(value)
    metadata = {key: value for key, value in document.items() if key != "_id" and key not in fields}
    _check_metadata(metadata)


def _check_sparse(value: Mapping[str, Any]) -> None:
    indices = value["indices"]
    if not indices or len(indices) != len(value["values"]) or len(set(indices)) != len(indices):
        raise Refusal(400, "Sparse vector must contain at least one value, and each index once")
    if not all(0 <= index < 2**32 for index in indices):
        raise Refusal(400, "Sparse indices are 32-bit")


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for name, value in metadata.items():
        if not name or name[0] in "_$":
            raise Refusal(400, f"field name {name!r} is reserved")
        is_list = isinstance(value, list) and all(isinstance(one, str) for one in value)
        # A sparse vector in an index without a field for it is a nested object like any other.
        if not is_list and not isinstance(value, str | int | float | bool):
            raise Refusal(400, f"field {name}: only texts, numbers, booleans and lists of texts")
    if len(json.dumps(metadata, ensure_ascii=False).encode("utf-8", "surrogatepass")) > _MAX_METADATA_BYTES + 4096:
        # Its own spaces are not the caller's.
        raise Refusal(400, "metadata is over 40960 bytes")


def _check_filter(wanted: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    if not wanted:
        raise Refusal(400, "an empty filter")
    for name, test in wanted.items():
        if name in ("$and", "$or"):
            if not isinstance(test, list) or not test:
                raise Refusal(400, f"{name} takes a list of expressions")
            for one in test:
                _check_filter(one, fields)
        elif name.startswith("$") or name in fields:
            raise Refusal(400, f"{name!r} cannot be filtered")
        else:
            _check_test(name, test)


def _check_test(name: str, test: Any) -> None:
    if not isinstance(test, dict) or not test:
        raise Refusal(400, f"{name}: an operator is missing")
    for operator, value in test.items():
        if operator in ("$in", "$nin"):
            good = isinstance(value, list) and 0 < len(value) <= _MAX_FILTER_VALUES
            good = good and all(isinstance(one, str | int | float) for one in value)
        elif operator in ("$gt", "$gte", "$lt", "$lte"):
            good = isinstance(value, int | float) and not isinstance(value, bool)
        elif operator in ("$eq", "$ne"):
            good = isinstance(value, str | int | float | bool)
        else:
            good = operator == "$exists" and isinstance(value, bool)
        if not good:
            raise Refusal(400, f"{name}: {operator} cannot be kept")


def _keeps(wanted: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    return all(_passes(name, test, document) for name, test in wanted.items())


def _passes(name: str, test: Any, document: Mapping[str, Any]) -> bool:
    if name == "$and":
        return all(_keeps(one, document) for one in test)
    if name == "$or":
        return any(_keeps(one, document) for one in test)
    return all(_holds(operator, value, document.get(name)) for operator, value in test.items())


def _holds(operator: str, value: Any, held: Any) -> bool:
    """A field that is not there passes `$exists: false` alone: the strictest reading."""
    if operator == "$exists":
        return (held is not None) is value
    if held is None:
        return False
    several = held if isinstance(held, list) else [held]
    match operator:
        case "$eq":
            return any(_same(one, value) for one in several)
        case "$ne":
            return not any(_same(one, value) for one in several)
        case "$in":
            return any(_same(one, each) for one in several for each in value)
        case "$nin":
            return not any(_same(one, each) for one in several for each in value)
    if isinstance(held, bool) or not isinstance(held, int | float):
        return False
    return {"$gt": held > value, "$gte": held >= value, "$lt": held < value, "$lte": held <= value}[operator]


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _patch(kept: dict[str, dict[str, Any]], patches: list[dict[str, Any]]) -> None:
    for patch in patches:
        if (before := kept.get(patch["_id"])) is None:
            continue
        after = {name: value for name, value in before.items() if name not in patch.get("_remove_fields", ())}
        after |= {name: value for name, value in patch.items() if name != "_remove_fields"}
        kept[patch["_id"]] = after


def _search(
    namespace: str, documents: Mapping[str, dict[str, Any]], fields: Mapping[str, Any], asked: Any
) -> dict[str, Any]:
    if not 1 <= asked["top_k"] <= _MAX_TOP_K:
        raise Refusal(400, f"top_k is not between 1 and {_MAX_TOP_K}")
    (clause,) = asked["score_by"]
    kind = fields.get(clause["field"], {}).get("type")
    if kind != clause["type"]:
        raise Refusal(400, f"{clause['field']!r} is no {clause['type']} field")
    score = _dense_score(clause, fields) if kind == "dense_vector" else _sparse_score(clause)
    nearest_first = fields[clause["field"]].get("metric") != "euclidean"
    wanted = asked.get("filter")
    scored = [
        (number, document)
        for document in documents.values()
        if (wanted is None or _keeps(wanted, document)) and (number := score(document)) is not None
    ]
    # Equal scores come in no order: the reverse of the ids', to be sure that nobody counts on one.
    scored.sort(key=lambda one: one[1]["_id"], reverse=True)
    scored.sort(key=lambda one: one[0], reverse=nearest_first)
    matches = [
        {"_id": document["_id"], "_score": number, **_included(document, asked.get("include_fields") or [])}
        for number, document in scored[: asked["top_k"]]
    ]
    return {"matches": matches, "namespace": namespace, "usage": {"read_units": 1}}


def _dense_score(clause: Any, fields: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], float | None]:
    name, asked = clause["field"], clause["values"]
    if len(asked) != fields[name]["dimension"]:
        raise Refusal(400, "Vector dimension does not match the dimension of the index")
    metric = fields[name]["metric"]

    def score(document: Mapping[str, Any]) -> float:
        held = document[name]
        dot = math.fsum(one * other for one, other in zip(asked, held, strict=True))
        if metric == "dotproduct":
            return dot
        if metric == "euclidean":
            return math.fsum((one - other) ** 2 for one, other in zip(asked, held, strict=True))
        return dot / (math.hypot(*asked) * math.hypot(*held) or 1.0)

    return score


def _sparse_score(clause: Any) -> Callable[[Mapping[str, Any]], float | None]:
    vector = clause["sparse_values"]
    _check_sparse(vector)
    weights = dict(zip(vector["indices"], vector["values"], strict=True))

    def score(document: Mapping[str, Any]) -> float | None:
        held = document.get(clause["field"])
        if held is None:
            return None
        shared = [
            weights[index] * value
            for index, value in zip(held["indices"], held["values"], strict=True)
            if index in weights
        ]
        return math.fsum(shared) if shared else None

    return score


def _included(document: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
    if names is None or "*" in names:
        return {name: value for name, value in document.items() if name != "_id"}
    return {name: document[name] for name in names if name in document}


def _fetch(namespace: str, documents: Mapping[str, dict[str, Any]], asked: Any) -> dict[str, Any]:
    if asked.get("ids"):
        if len(asked["ids"]) > _MAX_DOCUMENTS:
            raise Refusal(400, f"at most {_MAX_DOCUMENTS} ids")
        found = [documents[one] for one in asked["ids"] if one in documents]
        rest = None
    else:
        matching = sorted(
            (one for one in documents.values() if _keeps(asked["filter"], one)), key=lambda one: one["_id"]
        )
        start, limit = int(asked.get("pagination_token") or 0), asked.get("limit", 100)
        found = matching[start : start + limit]
        rest = str(start + limit) if start + limit < len(matching) else None
    answer: dict[str, Any] = {
        "documents": {one["_id"]: {"_id": one["_id"], **_included(one, asked.get("include_fields"))} for one in found},
        "namespace": namespace,
        "usage": {"read_units": 1},
    }
    if rest is not None:
        answer["pagination"] = {"next": rest}
    return answer
