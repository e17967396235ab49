"""The device is the live session's, and what does not fit the model is refused before the model sees it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from kbmesh_onnx import session as session_module
from kbmesh_onnx.errors import DeviceUnavailable, InferenceError, ModelFolderError
from kbmesh_onnx.session import ModelSession
from opened_model import OpenedModel

WITHOUT_CUDA = pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="ONNX Runtime here is built with CUDA"
)


def rows(*shape: int) -> Any:
    return np.ones(shape, dtype=np.int64)


@WITHOUT_CUDA
def test_cuda_that_is_absent_is_an_error_when_asked_for(tiny: OpenedModel) -> None:
    with pytest.raises(DeviceUnavailable) as caught:
        ModelSession.open(tiny.folder, tiny.card, device="cuda")
    assert caught.value.device == "cuda"
    assert "CPUExecutionProvider" in caught.value.available


@WITHOUT_CUDA
def test_auto_falls_back_to_the_cpu_and_says_so(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, device="auto")
    assert (session.device, session.precision) == ("cpu", "fp32")
    session.close()


def test_cuda_that_is_listed_but_does_not_activate_is_not_believed(
    tiny: OpenedModel, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime built for CUDA lists it on a machine without, then quietly gives a session on the CPU."""
    real = onnxruntime.InferenceSession

    def on_cpu(*arguments: Any, providers: Any, **options: Any) -> Any:
        return real(*arguments, providers=["CPUExecutionProvider"], **options)

    monkeypatch.setattr(
        session_module.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(session_module.onnxruntime, "InferenceSession", on_cpu)
    with pytest.raises(DeviceUnavailable):
        ModelSession.open(tiny.folder, tiny.card, device="cuda")
    session = ModelSession.open(tiny.folder, tiny.card, device="auto")
    assert session.device == "cpu"
    assert capfd.readouterr() == ("", "")
    session.close()


def test_the_form_is_the_faster_one_unless_one_is_named(tiny: OpenedModel) -> None:
    for form, expected in (("auto", tiny.card.preferred_form["cpu"]), ("plain", "plain"), ("fused", "fused")):
        session = ModelSession.open(tiny.folder, tiny.card, form=form)  # type: ignore[arg-type] # str of a literal
        assert session.form == expected
        session.close()


@pytest.mark.parametrize(
    ("ids", "mask", "types"),
    [
        (rows(4), rows(4), rows(4)),
        (rows(2, 4), rows(2, 5), rows(2, 4)),
        (rows(2, 4), rows(2, 4), rows(1, 4)),
        (rows(2, 4).astype(np.int32), rows(2, 4), rows(2, 4)),
        (rows(0, 4), rows(0, 4), rows(0, 4)),
        (rows(2, 0), rows(2, 0), rows(2, 0)),
        (rows(1, 65), rows(1, 65), rows(1, 65)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tiny: OpenedModel, ids: Any, mask: Any, types: Any) -> None:
    with pytest.raises(ValueError):
        tiny.sessions["plain"].run(ids, mask, types, outputs=("embeddings",))


@pytest.mark.parametrize("outputs", [("logits",), ("embeddings", "logits"), ()])
def test_an_output_that_the_model_has_not_is_refused(tiny: OpenedModel, outputs: Any) -> None:
    with pytest.raises(ValueError):
        tiny.sessions["plain"].run(rows(1, 4), rows(1, 4), rows(1, 4), outputs=outputs)


@pytest.mark.parametrize("form", ["plain", "fused"])
def test_an_id_that_the_vocabulary_has_not_fails_that_batch_only(
    tiny: OpenedModel, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    session = tiny.sessions[form]
    with pytest.raises(InferenceError) as caught:
        session.run(rows(1, 4) * 10_000, rows(1, 4), rows(1, 4), outputs=("embeddings",))
    assert not caught.value.out_of_memory
    (vector,) = session.run(rows(1, 4), rows(1, 4), rows(1, 4), outputs=("embeddings",))
    assert vector.shape == (1, 32)
    assert capfd.readouterr().out == ""


def test_outputs_come_in_the_order_asked_for(tiny: OpenedModel) -> None:
    session = tiny.sessions["plain"]
    tokens, vectors = session.run(rows(2, 4), rows(2, 4), rows(2, 4), outputs=("token_embeddings", "embeddings"))
    assert (tokens.shape, vectors.shape) == ((2, 4, 32), (2, 32))
    assert tokens.dtype == vectors.dtype == np.float32


def test_a_closed_session_says_so_and_runs_in_flight_finish(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, intra_op_threads=1)
    begun = threading.Barrier(5)

    def run_until_closed() -> int:
        begun.wait()
        for done in range(100_000):
            try:
                session.run(rows(8, 64), rows(8, 64), rows(8, 64), outputs=("embeddings",))
            except InferenceError:
                return done
        raise AssertionError("the session was never closed")

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run_until_closed) for _ in range(4)]
        begun.wait()
        session.close()
        assert all(run.result() >= 0 for run in runs)
    session.close()


def test_a_form_that_is_not_there(tiny: OpenedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError):
        ModelSession.open(tmp_path, tiny.card)
