"""The exported model gives the vectors that other implementations publish, in either form and in any batch."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from opened_model import OpenedModel

PUBLISHED = json.loads((Path(__file__).parents[1] / "data/all-MiniLM-L6-v2.refvec.json").read_text())
FORMS = ("plain", "fused")
SHORT = ["a", "?", "1", "é", "的", "🙂", "", " "]


def cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("published", PUBLISHED, ids=lambda entry: entry["text"])
def test_a_published_vector_comes_out(minilm: OpenedModel, form: str, published: dict[str, Any]) -> None:
    """EMB-08: the pooling is the model's own, or these would differ."""
    (vector,) = minilm.embed([published["text"]], form=form)
    expected = published.get("vector") or published["vector_prefix"]
    assert cosine(vector[: len(expected)], expected) >= 0.99999


def test_the_card_says_what_the_model_is(minilm: OpenedModel) -> None:
    card = minilm.card
    assert (card.kind, card.architecture, card.dimension, card.max_tokens) == ("encoder", "bert", 384, 256)
    assert (card.pooling, card.normalized, card.query_prefix, card.document_prefix) == ("mean", True, "", "")
    assert card.source == "sentence-transformers/all-MiniLM-L6-v2"
    assert card.verification.max_error <= 1e-5
    assert card.verification.min_cosine is not None
    assert card.verification.min_cosine >= 0.99999
    assert card.preferred_form["cpu"] == min(FORMS, key=lambda form: card.measured_ms["cpu"][form])


@pytest.mark.parametrize("form", FORMS)
def test_padding_and_batch_mates_do_not_move_a_vector(minilm: OpenedModel, form: str) -> None:
    """EMB-02, EMB-06, EMB-07."""
    texts = [*SHORT, "short", "rotate the key", "a much longer sentence " * 20]
    alone = np.concatenate([minilm.embed([text], form=form) for text in texts])
    together = minilm.embed(texts, form=form, length=256)
    assert alone.shape == together.shape == (len(texts), 384)
    np.testing.assert_allclose(together, alone, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)


def test_short_texts_from_many_threads_at_once(minilm: OpenedModel) -> None:
    """EMB-02: each of 200 concurrent calls gives the vector that the text has alone."""
    alone = {text: minilm.embed([text])[0] for text in SHORT}
    with ThreadPoolExecutor(16) as pool:
        for text, vectors in pool.map(lambda text: (text, minilm.embed([text])), SHORT * 25):
            np.testing.assert_allclose(vectors, alone[text][None], atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_token_vectors_pool_to_the_vector(minilm: OpenedModel, form: str) -> None:
    rows = minilm.tokenizer.encode(["short", "how do I reset a forgotten password"], max_tokens=256)
    tokens = minilm.run(rows, "token_embeddings", form=form, length=20)
    assert tokens.shape == (2, 20, 384)
    vectors = minilm.run(rows, "embeddings", form=form)
    for row, states, vector in zip(rows, tokens, vectors, strict=True):
        assert not states[row.tokens :].any()
        assert cosine(states[: row.tokens].mean(axis=0), vector) >= 0.999999


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_with_a_hole_is_obeyed(tiny: OpenedModel, form: str) -> None:
    """What is masked has no influence, wherever it stands."""
    ids = np.array([[2, 9, 30, 40, 11, 3]], dtype=np.int64)
    mask, types = np.array([[1, 1, 0, 0, 1, 1]], dtype=np.int64), np.zeros((1, 6), dtype=np.int64)
    changed = np.where(mask == 1, ids, 50)
    session = tiny.sessions[form]
    (one,), (other,) = (session.run(each, mask, types, outputs=("embeddings",)) for each in (ids, changed))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_row_of_padding_alone_gives_no_nan(tiny: OpenedModel) -> None:
    ids = np.array([[2, 9, 3], [0, 0, 0]], dtype=np.int64)
    mask = (ids > 0).astype(np.int64)
    for session in tiny.sessions.values():
        (vectors,) = session.run(ids, mask, np.zeros_like(ids), outputs=("embeddings",))
        assert np.isfinite(vectors).all()


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.text(max_size=60).filter(lambda text: text.isprintable()), min_size=1, max_size=6))
def test_both_forms_agree_on_any_texts(tiny: OpenedModel, texts: list[str]) -> None:
    rows = tiny.tokenizer.encode(texts, max_tokens=64)
    plain, fused = (tiny.run(rows, "embeddings", form=form) for form in FORMS)
    np.testing.assert_allclose(plain, fused, atol=1e-5)
