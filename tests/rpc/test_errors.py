"""An error is raised in one process and caught, typed, in another."""

import asyncio
import pickle
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from kbmesh.chunker.v1 import chunker_pb2, chunker_pb2_grpc
from kbmesh.errors.v1 import errors_pb2
from kbmesh_rpc import errors
from kbmesh_rpc.errors import FieldViolation, KbmeshError, Reason, error_for
from kbmesh_rpc.server import running
from kbmesh_rpc.status import CODES, from_item_error, from_rpc_error, to_item_error
from rpc.chunker_application import ChunkerApplication, Context, raising, settings, stub

PROTO = Path(__file__).parents[2] / "protos/kbmesh/errors/v1/errors.proto"

EXAMPLES: list[KbmeshError] = [
    errors.InvalidField("top_k", "must be positive"),
    errors.RequestTooLarge(field="texts", limit=1000, actual=1001),
    errors.Unauthenticated(),
    errors.PermissionDenied(),
    errors.KnowledgeBaseNotFound("handbook"),
    errors.KnowledgeBaseAlreadyExists("handbook"),
    errors.DocumentNotFound(knowledge_base="handbook", document="d1"),
    errors.ModelNotFound("no-such", available=("a", "b")),
    errors.ModelMismatch("m", expected="f1", actual="f2"),
    errors.ModelNotReady("m", "loading"),
    errors.EmptyText("texts[0]"),
    errors.TextTooLong(tokens=300, limit=256),
    errors.InferenceFailed("m", "NaN"),
    errors.QueueFull(queued_tokens=9, limit=8, retry_after_seconds=0.25),
    errors.DeadlineExceeded("rerank"),
    errors.Cancelled(),
    errors.ShuttingDown(),
    errors.DependencyUnavailable("embedder", "no answer", cause="timeout"),
    errors.DependencyInvalidResponse("embedder", "fewer vectors than texts"),
    errors.UnsupportedMediaType("video/mp4"),
    errors.DocumentUnreadable("application/pdf", "no cross-reference table"),
    errors.DocumentEmpty(),
    errors.DocumentTooLarge(limit=10, actual=11),
    errors.Conflict("handbook/d1", "another generation was written"),
    errors.FeatureUnsupported("PROPOSITION"),
    errors.InternalError("r-1"),
    errors.DocumentShrunk(before=5000, now=0),
    errors.JobNotFound(knowledge_base="handbook", job="nightly"),
    errors.RebuildNotFound("handbook"),
    errors.RebuildIncomplete("handbook", outstanding=3),
    errors.ProfileNotFound("support"),
    errors.ProfileAlreadyExists("support"),
    errors.ContentLeftOut("navigation was left out", left_out="navigation", characters="90", count="2"),
]
each_error = pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason.name)


def contract() -> dict[str, tuple[str, set[str]]]:
    """Reason → status code and metadata keys, as the comments of errors.proto have them."""
    found: dict[str, tuple[str, set[str]]] = {}
    comment = ""
    for line in PROTO.read_text().splitlines():
        if value := re.match(r"  (ERROR_REASON_\w+) = \d+;", line):
            code = re.match(r"[A-Z_]+", comment)
            keys = comment.partition("Metadata:")[2]
            found[value[1]] = (code[0] if code else "", set(re.findall(r"`(\w+)`", keys)))
            comment = ""
        elif text := re.match(r"  // (.*)", line):
            comment = f"{comment} {text[1]}".strip()
        else:
            comment = ""
    return found


def parts(error: KbmeshError) -> tuple[object, ...]:
    return type(error), error.message, error.metadata, error.field_violations, error.retry_after_seconds


def test_the_examples_are_every_reason_of_the_contract() -> None:
    names = set(errors_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
    assert {reason.value for reason in Reason} == names
    assert {error.reason.value for error in EXAMPLES} == names
    assert len(EXAMPLES) == len(names)


@each_error
def test_code_and_metadata_are_the_contracts(error: KbmeshError) -> None:
    code, keys = contract()[error.reason.value]
    assert CODES[error.reason].name == code
    assert set(error.metadata) == keys


@each_error
def test_an_error_survives_a_process_pool(error: KbmeshError) -> None:
    assert parts(pickle.loads(pickle.dumps(error))) == parts(error)


@each_error
async def test_an_error_arrives_as_it_was_raised(error: KbmeshError) -> None:
    async with (
        running(ChunkerApplication(chunk=raising(error)), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(chunker_pb2.ChunkRequest())
    assert caught.value.code() is CODES[error.reason]
    assert parts(from_rpc_error(caught.value, dependency="chunker")) == parts(error)


async def test_an_error_of_a_synchronous_call_is_typed_too() -> None:
    def call(address: str) -> KbmeshError:
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
            chunker_pb2_grpc.ChunkerServiceStub(channel).Chunk(chunker_pb2.ChunkRequest())
        return from_rpc_error(caught.value, dependency="chunker")

    error = errors.QueueFull(queued_tokens=9, limit=8, retry_after_seconds=0.25)
    async with running(ChunkerApplication(chunk=raising(error)), settings()) as address:
        assert parts(await asyncio.to_thread(call, address)) == parts(error)


@pytest.mark.parametrize(
    "group",
    [
        ExceptionGroup("tasks", [errors.EmptyText("a"), ExceptionGroup("tasks", [errors.EmptyText("b")])]),
        ExceptionGroup("tasks", [errors.EmptyText("a"), ValueError("b")]),
    ],
    ids=["all kbmesh's", "one unknown"],
)
async def test_errors_of_a_task_group_are_its_first_unless_one_is_unknown(group: ExceptionGroup[Exception]) -> None:
    async with (
        running(ChunkerApplication(chunk=raising(group)), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(chunker_pb2.ChunkRequest())
    error = from_rpc_error(caught.value, dependency="chunker")
    assert error.reason is (Reason.EMPTY_TEXT if group.split(ValueError)[0] is None else Reason.INTERNAL)


async def test_a_servicers_own_abort_is_left_alone() -> None:
    async def chunk(_request: chunker_pb2.ChunkRequest, context: Context) -> chunker_pb2.ChunkResponse:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "no such page")
        raise AssertionError

    async with (
        running(ChunkerApplication(chunk=chunk), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(chunker_pb2.ChunkRequest())
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.OUT_OF_RANGE, "no such page")


async def test_a_method_that_a_server_leaves_out_is_unsupported() -> None:
    async with (
        running(ChunkerApplication(), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).ListStrategies(chunker_pb2.ListStrategiesRequest())
    assert from_rpc_error(caught.value, dependency="chunker").reason is Reason.FEATURE_UNSUPPORTED


@each_error
def test_an_error_of_one_item_keeps_reason_and_metadata(error: KbmeshError) -> None:
    item = errors_pb2.ItemError.FromString(to_item_error(error).SerializeToString())
    rebuilt = from_item_error(item)
    assert (type(rebuilt), rebuilt.message, rebuilt.metadata) == (type(error), error.message, error.metadata)
    # Whole milliseconds, and never earlier than was said.
    before, after = error.retry_after_seconds, rebuilt.retry_after_seconds
    assert after == before if before is None or after is None else before <= after < before + 0.001


def test_a_reason_of_a_newer_version_is_an_invalid_response() -> None:
    item = errors_pb2.ItemError(message="new")
    item.reason = 9999  # type: ignore[assignment]  # what a newer server would send
    rebuilt = from_item_error(item, dependency="embedder")
    assert rebuilt.reason is Reason.DEPENDENCY_INVALID_RESPONSE
    assert rebuilt.metadata == {"dependency": "embedder"}


def test_several_wrong_fields_are_one_error() -> None:
    violations = [FieldViolation(field="a", description="x"), FieldViolation(field="b", description="y")]
    error = errors.InvalidField.of(violations)
    assert error.field_violations == tuple(violations)
    assert error.metadata == {"field": "a"}


@pytest.mark.parametrize(
    "error",
    [
        errors.KnowledgeBaseNotFound("知" * 1_000_000),
        errors.DocumentNotFound(knowledge_base="知" * 9_000, document="識" * 9_000),
        errors.InvalidField.of([FieldViolation(field="知" * 500, description="識" * 500)] * 1000),
        errors.ModelNotFound("知" * 9_000, available=["識" * 99] * 1000),
    ],
    ids=lambda error: error.reason.name,
)
async def test_an_error_that_repeats_a_huge_name_still_arrives(error: KbmeshError) -> None:
    async with (
        running(ChunkerApplication(chunk=raising(error)), settings()) as address,
        grpc.aio.insecure_channel(address) as channel,  # with gRPC's default limit of metadata
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(channel).Chunk(chunker_pb2.ChunkRequest())
    rebuilt = from_rpc_error(caught.value, dependency="chunker")
    assert rebuilt.reason is error.reason
    assert rebuilt.metadata.keys() == error.metadata.keys()


def test_error_for_rebuilds_the_typed_error() -> None:
    error = error_for(Reason.QUEUE_FULL, "full", {"limit": "8"})
    assert isinstance(error, errors.QueueFull)
    assert error.metadata == {"limit": "8"}


def test_domain_code_can_use_the_errors_without_grpc() -> None:
    script = (
        "import sys, kbmesh_rpc, kbmesh_rpc.errors, kbmesh_rpc.call, kbmesh_rpc.deadline\n"
        "print([name for name in ('grpc', 'google.protobuf', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HOSTILE = "kb\r\n\x1b[2J\u202egnp.exe\x00" + "x" * 1_000_000


def every_error_about(name: str) -> list[KbmeshError]:
    return [
        errors.InvalidField(f"scalerMetadata[{name}]", f"{errors.shown(name)} is not known"),
        errors.InvalidField.of([FieldViolation(field=name, description=name)] * 2),
        errors.RequestTooLarge(field=name, limit=1, actual=2),
        errors.KnowledgeBaseNotFound(*[name] * 64),
        errors.KnowledgeBaseAlreadyExists(name),
        errors.DocumentNotFound(knowledge_base=name, document=name),
        errors.ModelNotFound(name, available=(name, name)),
        errors.ModelMismatch(name, expected=name, actual=name),
        errors.ModelNotReady(name, name),
        errors.EmptyText(name),
        errors.InferenceFailed(name, name),
        errors.DeadlineExceeded(name),
        errors.DependencyUnavailable(name, name),
        errors.DependencyInvalidResponse(name, name),
        errors.UnsupportedMediaType(name),
        errors.DocumentUnreadable(name, name),
        errors.Conflict(name, name),
        errors.FeatureUnsupported(name),
        errors.JobNotFound(knowledge_base=name, job=name),
        errors.RebuildNotFound(name),
        errors.RebuildIncomplete(name, outstanding=3),
        errors.ProfileNotFound(name),
        errors.ProfileAlreadyExists(name),
        errors.ContentLeftOut(name, left_out=name),
    ]


@pytest.mark.parametrize("error", every_error_about(HOSTILE), ids=lambda error: error.reason.name)
def test_a_name_of_a_megabyte_with_control_characters_is_cut_and_escaped(error: KbmeshError) -> None:
    """Whether the error travels as a status or as that of an item; who rebuilds it has the same."""
    item = to_item_error(error)
    texts = [error.message, str(error), item.message, *error.metadata.values(), *item.metadata.values()]
    texts += [text for one in error.field_violations for text in (one.field, one.description)]
    for text in texts:
        assert len(text) <= errors.MESSAGE_CHARACTERS
        assert not any(sign in text for sign in "\r\n\x1b\x00\u202e"), "it would turn the line or clear the screen"
    assert all(len(value) <= errors.VALUE_CHARACTERS for value in error.metadata.values())
    assert parts(from_item_error(item)) == (*parts(error)[:3], (), None)
    assert parts(pickle.loads(pickle.dumps(error))) == parts(error)


@pytest.mark.parametrize(
    "error",
    [
        errors.KnowledgeBaseNotFound(HOSTILE),
        errors.DocumentNotFound(knowledge_base="handbook", document=HOSTILE),
        errors.JobNotFound(knowledge_base="handbook", job=HOSTILE),
        errors.ModelNotFound(HOSTILE),
        errors.ProfileNotFound(HOSTILE),
        errors.UnsupportedMediaType(HOSTILE),
    ],
    ids=lambda error: error.reason.name,
)
def test_of_a_long_name_a_message_repeats_the_beginning(error: KbmeshError) -> None:
    assert "'kb\\r\\n\\x1b[2J\\u202egnp.exe\\x00xxx" in error.message
    assert "x…'" in error.message
    assert len(error.message) < 64 + 128


def test_names_of_the_longest_kind_that_there_are_and_texts_of_other_scripts_are_left_as_they_are() -> None:
    names = ["k" * 63, "Größe", "議事録.md", "a\u200db", "日\u3000本"]
    for name in names:
        assert errors.KnowledgeBaseNotFound(name).metadata == {"knowledge_base": name}
        assert errors.readable(name) == name


def test_a_message_is_one_line() -> None:
    error = errors.InvalidField("name", "must not\n  be\tblank")
    assert (error.message, error.field_violations[0].description) == ("name: must not be blank", "must not be blank")
