"""A bound run gives what a plain one gives, in a bucket too. On the CPU, whose provider takes the same bindings."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kbmesh_onnx import binding
from kbmesh_onnx.bucket import Bucket, choose_buckets, fill, lengths, smallest
from kbmesh_onnx.device_settings import DeviceSettings
from kbmesh_onnx.errors import InferenceError
from kbmesh_onnx.session import ModelSession
from opened_model import OpenedModel

BOUND = DeviceSettings(io_binding="on")
BUCKETS = DeviceSettings(io_binding="on", cuda_graphs=12, cuda_graph_tokens=256)
SHAPES = [(1, 1), (1, 7), (2, 8), (3, 20), (5, 33), (9, 64)]


def batch(rows: int, tokens: int, *, seed: int = 0) -> tuple[Any, Any, Any]:
    """Texts of random ids and lengths; the first is as long as the batch."""
    random = np.random.default_rng(seed)
    ids = random.integers(5, 100, size=(rows, tokens), dtype=np.int64)
    long = random.integers(1, tokens + 1, size=rows)
    long[0] = tokens
    mask = (np.arange(tokens) < long[:, None]).astype(np.int64)
    return ids * mask, mask, np.zeros_like(ids)


def same(one: Any, other: Any) -> None:
    for first, second in zip(one, other, strict=True):
        assert first.shape == second.shape
        assert first.dtype == second.dtype == np.float32
        np.testing.assert_allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("form", ["plain", "fused"])
@pytest.mark.parametrize("device", [BOUND, BUCKETS], ids=["bound", "buckets"])
def test_an_encoder(tiny: OpenedModel, form: Any, device: DeviceSettings) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, form=form, settings=device)
    for outputs in (("embeddings",), ("token_embeddings", "embeddings")):
        for rows, tokens in SHAPES:
            given_batch = batch(rows, tokens)
            expected = tiny.sessions[form].run(*given_batch, outputs=outputs)
            same(session.run(*given_batch, outputs=outputs), expected)
    assert session.graphs == device.cuda_graphs
    session.close()


@pytest.mark.parametrize("device", [BOUND, BUCKETS], ids=["bound", "buckets"])
def test_a_cross_encoder(tiny_cross_encoder: OpenedModel, device: DeviceSettings) -> None:
    model = tiny_cross_encoder
    session = ModelSession.open(model.folder, model.card, form="plain", settings=device)
    for rows, tokens in SHAPES:
        expected = model.sessions["plain"].run(*batch(rows, tokens), outputs=("logits",))
        same(session.run(*batch(rows, tokens), outputs=("logits",)), expected)
    session.close()


def test_token_vectors_in_a_bucket_are_without_its_padding(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, settings=BUCKETS)
    (tokens,) = session.run(*batch(3, 11), outputs=("token_embeddings",))
    assert tokens.shape == (3, 11, 32)
    session.close()


@given(
    shapes=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 64)), min_size=1, max_size=4), seed=st.integers(0, 9)
)
@settings(max_examples=25, deadline=None)
def test_whatever_ran_before_leaves_nothing_behind(tiny: OpenedModel, shapes: Any, seed: int) -> None:
    """Memory is used again from run to run: an older batch must not show."""
    session = ModelSession.open(tiny.folder, tiny.card, form="plain", settings=BUCKETS)
    for number, (rows, tokens) in enumerate(shapes):
        taken = batch(rows, tokens, seed=seed + number)
        same(
            session.run(*taken, outputs=("embeddings",)),
            tiny.sessions["plain"].run(*taken, outputs=("embeddings",)),
        )
    session.close()


def test_what_a_run_gave_does_not_change_with_the_next(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, settings=BUCKETS)
    (first,) = session.run(*batch(2, 8, seed=1), outputs=("embeddings",))
    kept = first.copy()
    session.run(*batch(2, 8, seed=2), outputs=("embeddings",))
    np.testing.assert_array_equal(first, kept)
    session.close()


def test_another_thread_than_the_one_that_captured_gets_the_same(
    tiny: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime keeps graphs by thread: another one must not replay, and is told to capture none."""
    asked: list[str] = []
    real = binding._run_options

    def note(entries: dict[str, str]) -> Any:
        asked.append(entries.get("gpu_graph_id", ""))
        return real(entries)

    monkeypatch.setattr(binding, "_run_options", note)
    session = ModelSession.open(tiny.folder, tiny.card, settings=DeviceSettings(io_binding="on", cuda_graphs=3))
    taken = batch(2, 8)
    (expected,) = session.run(*taken, outputs=("embeddings",))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(session.run(*taken, outputs=("embeddings",))))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    assert [each for each in asked if each] == ["-1", "1", "2", "3"]
    session.close()


def test_memory_goes_back_after_a_large_run(tiny: OpenedModel) -> None:
    session = ModelSession.open(
        tiny.folder, tiny.card, form="plain", settings=DeviceSettings(io_binding="on", shrink_tokens=64)
    )
    for rows, tokens in ((1, 8), (8, 8), (1, 8)):
        taken = batch(rows, tokens)
        same(
            session.run(*taken, outputs=("embeddings",)),
            tiny.sessions["plain"].run(*taken, outputs=("embeddings",)),
        )
    session.close()


def test_an_id_that_the_vocabulary_has_not_fails_that_batch_only(tiny: OpenedModel) -> None:
    session = ModelSession.open(tiny.folder, tiny.card, settings=BUCKETS)
    ids, mask, types = batch(2, 8)
    with pytest.raises(InferenceError):
        session.run(ids + 10_000, mask, types, outputs=("embeddings",))
    assert session.run(ids, mask, types, outputs=("embeddings",))[0].shape == (2, 32)
    session.close()


def test_buckets_cover_every_length_and_keep_to_their_number() -> None:
    assert lengths(512) == (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
    assert lengths(5) == (5,)
    buckets = choose_buckets(max_tokens=512, max_area=4096, most=1000)
    assert {bucket.tokens for bucket in buckets} == set(lengths(512))
    assert max(bucket.area for bucket in buckets) == 4096
    assert choose_buckets(max_tokens=512, max_area=4096, most=7) == buckets[:7]
    assert choose_buckets(max_tokens=512, max_area=4096, most=0) == ()


@given(rows=st.integers(1, 40), tokens=st.integers(1, 512))
@settings(max_examples=200, deadline=None)
def test_the_bucket_taken_holds_the_batch_and_wastes_little(rows: int, tokens: int) -> None:
    bucket = smallest(choose_buckets(max_tokens=512, max_area=1 << 20, most=1000), rows, tokens)
    assert bucket is not None
    assert bucket.holds(rows, tokens)
    assert bucket.rows < 2 * rows or rows == 1
    assert bucket.tokens <= max(8, tokens * 3 / 2) or tokens < 16


def test_a_batch_that_no_bucket_holds_has_none() -> None:
    assert smallest([Bucket(rows=2, tokens=8)], 3, 8) is None


def test_padding_rows_attend_to_something() -> None:
    ids, mask, types = (np.full((4, 8), 9, dtype=np.int64) for _ in range(3))
    fill(ids, mask, types, *batch(2, 5))
    assert mask.sum(axis=1).min() >= 1
    assert not ids[2:].any()
    assert not mask[:2, 5:].any()
    assert not types.any()
