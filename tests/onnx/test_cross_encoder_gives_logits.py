"""A cross-encoder's logits are those of BertForSequenceClassification."""

from pathlib import Path

import numpy as np
import pytest
from kbmesh_onnx.architecture import read_architecture
from kbmesh_onnx.reference import BertReference
from kbmesh_onnx.tokenizer import TokenizedText
from opened_model import OpenedModel
from tiny_models import tiny_config, tiny_tensors

FORMS = ("plain", "fused")


def windows(model: OpenedModel, query: str, documents: list[str]) -> list[TokenizedText]:
    pairs = model.tokenizer.encode_pairs(query, documents, max_tokens=model.card.max_tokens)
    return [window for pair in pairs for window in pair.windows]


@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_the_forward_pass_in_numpy(tiny_cross_encoder: OpenedModel, form: str) -> None:
    rows = windows(tiny_cross_encoder, "which port", ["the port is 8443", "", "a", "filler " * 300])
    reference = BertReference(read_architecture(tiny_config()), tiny_tensors(classifier=True))
    expected = reference.logits(reference.hidden_states([row.ids for row in rows], [row.type_ids for row in rows]))
    logits = tiny_cross_encoder.run(rows, "logits", form=form)
    assert logits.shape == (len(rows), 1)
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    assert float(logits.max() - logits.min()) > 0.01


@pytest.mark.parametrize("form", FORMS)
def test_a_logit_does_not_depend_on_batch_mates_or_padding(tiny_cross_encoder: OpenedModel, form: str) -> None:
    rows = windows(tiny_cross_encoder, "which port", ["same text", "same text", "unrelated long text " * 20])
    alone = np.concatenate([tiny_cross_encoder.run([row], "logits", form=form) for row in rows])
    together = tiny_cross_encoder.run(rows, "logits", form=form, length=128)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_segments_move_a_logit(tiny_cross_encoder: OpenedModel) -> None:
    """Query and document are told apart by their segment, so swapping them is another question."""
    one = tiny_cross_encoder.run(windows(tiny_cross_encoder, "cat", ["red"]), "logits")
    other = tiny_cross_encoder.run(windows(tiny_cross_encoder, "red", ["cat"]), "logits")
    assert abs(float(one[0, 0] - other[0, 0])) > 1e-4


def test_the_card_says_what_it_is(tiny_cross_encoder: OpenedModel, tmp_path: Path) -> None:
    card = tiny_cross_encoder.card
    assert (card.kind, card.max_tokens, card.normalized) == ("cross_encoder", 128, False)
    assert card.verification.min_cosine is None
    assert card.verification.max_error <= card.verification.tolerance
    for session in tiny_cross_encoder.sessions.values():
        assert session.outputs == {"logits"}
