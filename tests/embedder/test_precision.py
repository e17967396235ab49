"""What a caller gets of int8 models, and of smaller vectors and numbers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from embedder.calls import Embedder
from kbmesh.embedder.v1 import embedder_pb2 as pb2
from kbmesh_embedder.application import make_application
from kbmesh_embedder.encoding import Encoding, encode
from kbmesh_embedder.settings import EmbedderSettings
from kbmesh_onnx.errors import ModelFolderError
from kbmesh_onnx.int8 import write_int8
from kbmesh_rpc.channel import open_channel
from kbmesh_rpc.errors import InvalidField, Reason
from kbmesh_rpc.server import running


async def test_an_int8_model_is_listed_as_one_and_its_vectors_are_not_mixed_with_fp32(
    models_folder: Path, embedder: Embedder, tmp_path: Path
) -> None:
    """Rule of the fingerprint: a knowledge base that was embedded in fp32 refuses int8."""
    shutil.copytree(models_folder / "all-MiniLM-L6-v2", tmp_path / "all-MiniLM-L6-v2")
    write_int8(tmp_path / "all-MiniLM-L6-v2")
    (whole,) = (await embedder.stub.ListModels(pb2.ListModelsRequest())).models
    texts = ["The port is 8443.", "Cake recipe with lemon"]
    expected = await embedder.vectors(texts)
    settings = EmbedderSettings(port=0, metrics_port=0, models=tmp_path, precision="int8")
    async with running(await make_application(settings), settings) as target, open_channel(target) as channel:
        eighth = Embedder(channel)
        (model,) = (await eighth.stub.ListModels(pb2.ListModelsRequest())).models
        assert (model.precision, model.device) == ("int8", "cpu")
        assert model.fingerprint != whole.fingerprint
        response = await eighth.embed(texts)
        assert response.model_fingerprint == model.fingerprint
        assert ((await eighth.vectors(texts)) * expected).sum(axis=1).min() > 0.99
        error = await eighth.refusal(texts, expected_fingerprint=whole.fingerprint)
        assert error.reason is Reason.MODEL_MISMATCH


async def test_a_model_without_an_int8_file_does_not_start_as_one(models_folder: Path) -> None:
    settings = EmbedderSettings(port=0, metrics_port=0, models=models_folder, precision="int8", load_retry_seconds=0)
    application = await make_application(settings)
    with pytest.raises(ModelFolderError, match="int8"):
        await application.warm_up()
    await application.close()


@pytest.mark.parametrize("dimensions", [383, 385, 100_000])
async def test_a_size_that_the_model_was_not_trained_for_names_the_field(embedder: Embedder, dimensions: int) -> None:
    error = await embedder.refusal(["text"], dimensions=dimensions)
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.field_violations] == ["dimensions"]


async def test_a_shortened_vector_travels_in_int8_with_a_scale_for_each(fake_embedder: Embedder) -> None:
    texts = ["some words", "other words here"]
    response = await fake_embedder.embed(texts, dimensions=64, encoding=pb2.ENCODING_INT8)
    assert (len(response.vectors.data), len(response.vectors.scales), response.vectors.dimension) == (128, 2, 64)
    bytes_ = np.frombuffer(response.vectors.data, dtype=np.int8).reshape(2, 64)
    decoded = bytes_ * np.array(response.vectors.scales, dtype=np.float32)[:, np.newaxis]
    assert (np.abs(decoded - await fake_embedder.vectors(texts, dimensions=64)) < 0.01).all()


def test_numbers_that_float16_has_not_are_refused_and_not_made_infinite() -> None:
    with pytest.raises(InvalidField) as failure:
        encode(np.array([[70_000.0, 1.0]], dtype=np.float32), Encoding.FLOAT16)
    assert failure.value.field_violations[0].field == "encoding"
