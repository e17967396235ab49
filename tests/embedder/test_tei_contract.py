"""The contract that clients of text-embeddings-inference were built from. Its names and numbers are not ours to change.

The tables are what that project's public proto has (https://github.com/huggingface/text-embeddings-inference).
"""

from google.protobuf.descriptor import FieldDescriptor
from tei.v1.tei_pb2 import DESCRIPTOR

METHODS = """
Info: Info
Embed: Embed EmbedStream EmbedSparse EmbedSparseStream EmbedAll EmbedAllStream
Predict: Predict PredictPair PredictStream PredictPairStream
Rerank: Rerank RerankStream
Tokenize: Tokenize TokenizeStream Decode DecodeStream
"""

FIELDS = """
InfoRequest:
InfoResponse: version=1 sha=2 docker_label=3 model_id=4 model_sha=5 model_dtype=6 model_type=7 \
max_concurrent_requests=8 max_input_length=9 max_batch_tokens=10 max_batch_requests=11 \
max_client_batch_size=12 tokenization_workers=13
Metadata: compute_chars=1 compute_tokens=2 total_time_ns=3 tokenization_time_ns=4 queue_time_ns=5 inference_time_ns=6
EmbedRequest: inputs=1 truncate=2 normalize=3 truncation_direction=4 prompt_name=5 dimensions=6
EmbedResponse: embeddings=1 metadata=2
EmbedSparseRequest: inputs=1 truncate=2 truncation_direction=3 prompt_name=4
SparseValue: index=1 value=2
EmbedSparseResponse: sparse_embeddings=1 metadata=2
EmbedAllRequest: inputs=1 truncate=2 truncation_direction=3 prompt_name=4
TokenEmbedding: embeddings=1
EmbedAllResponse: token_embeddings=1 metadata=2
PredictRequest: inputs=1 truncate=2 raw_scores=3 truncation_direction=4
PredictPairRequest: inputs=1 truncate=2 raw_scores=3 truncation_direction=4
Prediction: score=1 label=2
PredictResponse: predictions=1 metadata=2
RerankRequest: query=1 texts=2 truncate=3 raw_scores=4 return_text=5 truncation_direction=6
RerankStreamRequest: query=1 text=2 truncate=3 raw_scores=4 return_text=5 truncation_direction=6
Rank: index=1 text=2 score=3
RerankResponse: ranks=1 metadata=2
EncodeRequest: inputs=1 add_special_tokens=2 prompt_name=3
SimpleToken: id=1 text=2 special=3 start=4 stop=5
EncodeResponse: tokens=1
DecodeRequest: ids=1 skip_special_tokens=2
DecodeResponse: text=1
"""


def test_services_and_methods() -> None:
    assert DESCRIPTOR.package == "tei.v1"
    listed = [
        f"{service.name}: {' '.join(method.name for method in service.methods)}"
        for service in DESCRIPTOR.services_by_name.values()
    ]
    assert sorted(listed) == sorted(METHODS.strip().splitlines())
    for service in DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            streams = method.name.endswith("Stream")
            assert method.client_streaming == streams, method.full_name
            assert method.server_streaming == (streams and method.name != "RerankStream"), method.full_name


def test_messages_and_numbers() -> None:
    listed = [
        f"{message.name}: {' '.join(f'{field.name}={field.number}' for field in message.fields)}".strip()
        for message in DESCRIPTOR.message_types_by_name.values()
    ]
    assert sorted(listed) == sorted(FIELDS.strip().splitlines())


def test_types() -> None:
    messages = DESCRIPTOR.message_types_by_name
    for name, field, kind in [
        ("EmbedResponse", "embeddings", FieldDescriptor.TYPE_FLOAT),
        ("Rank", "score", FieldDescriptor.TYPE_FLOAT),
        ("Metadata", "compute_tokens", FieldDescriptor.TYPE_UINT32),
        ("Metadata", "total_time_ns", FieldDescriptor.TYPE_UINT64),
        ("DecodeRequest", "ids", FieldDescriptor.TYPE_UINT32),
        ("InfoResponse", "model_type", FieldDescriptor.TYPE_ENUM),
    ]:
        assert messages[name].fields_by_name[field].type == kind
    for name, field in [
        ("EmbedRequest", "prompt_name"),
        ("EmbedRequest", "dimensions"),
        ("InfoResponse", "model_sha"),
        ("Rank", "text"),
        ("SimpleToken", "start"),
    ]:
        assert messages[name].fields_by_name[field].has_presence
