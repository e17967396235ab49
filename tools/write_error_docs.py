"""Writes docs/errors.md from the comments of protos/kbmesh/errors/v1/errors.proto. `make protos` calls it."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "protos/kbmesh/errors/v1/errors.proto"

HEAD = """# Error reasons
Every failed call is a gRPC status whose details hold `google.rpc.ErrorInfo` with `domain` "kbmesh" and one of these
reasons (the full name, such as `ERROR_REASON_QUEUE_FULL`). Bad fields come with `google.rpc.BadRequest` as well,
overload with `google.rpc.RetryInfo`. An item that fails alone carries the same reasons in an `ItemError`. This page is
generated from `protos/kbmesh/errors/v1/errors.proto`.

Whatever a caller sends, an error can be read: a name that its message repeats is cut after 64 characters, a metadata
value after 256, the whole message after 1,000 (after 256 where it travels as a status), each with an ellipsis;
control characters, and those that turn the direction of a line, are escaped.

| reason | status | what it means | metadata |
|---|---|---|---|
"""

TAIL = """
## What has no reason
Some calls fail before kbmesh sees them. Their status is gRPC's own, without `ErrorInfo`:

- RESOURCE_EXHAUSTED, "Received message larger than max": a message is over the server's `KBMESH_MAX_MESSAGE_BYTES`
  (64 MiB), or an answer is over the client's own limit (4 MiB in gRPC, unless the channel says otherwise). A stream
  ends with it, and what was in work is lost. The same message never succeeds: send a smaller one.
- RESOURCE_EXHAUSTED that speaks of metadata: the call's metadata is over 64 KiB.
- UNIMPLEMENTED, "Method not found!": the server has no such service or method.
- UNAVAILABLE: nobody listens at the address, or the connection broke, as where the process was killed.
- DEADLINE_EXCEEDED and CANCELLED: the client gave up by itself and does not wait for the server's word.
- CANCELLED where the client did not give up: the server stopped before it began the call. Ask again, as after
  UNAVAILABLE.

Services of kbmesh that call each other turn these into the nearest reason, such as UNAVAILABLE into
`DEPENDENCY_UNAVAILABLE`. Bytes that are no message of the method are not among them: they are refused with
`INVALID_FIELD` for the field `request`, on a stream after the messages before them.
"""


def rows(proto: str) -> list[str]:
    enum = re.search(r"enum ErrorReason \{(.*?)\n\}", proto, flags=re.DOTALL)
    if enum is None:
        raise ValueError("errors.proto holds no enum ErrorReason")
    found = []
    for comment, name in re.findall(r"((?:  //[^\n]*\n)+)  ERROR_REASON_(\w+) = \d+;", enum.group(1)):
        if name == "UNSPECIFIED":
            continue
        text = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
        status, _, rest = text.partition(". ")
        meaning, _, metadata = rest.partition(" Metadata: ")
        meaning = meaning.removesuffix(" No metadata.")
        found.append(f"| `{name}` | {status} | {meaning} | {metadata.removesuffix('.') or '-'} |")
    return found


def page() -> str:
    return HEAD + "\n".join(rows(SOURCE.read_text())) + "\n" + TAIL


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/errors.md"
    target.write_text(page())
