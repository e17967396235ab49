"""What is trained is read as what is served."""

from pathlib import Path

from kbmesh_onnx.tokenizer import ModelTokenizer
from tiny_models import tiny_tokenizer

from training.pairs import MAX_TOKENS, Pairs


def test_a_pair_has_the_ids_that_the_served_model_reads(tmp_path: Path) -> None:
    tiny_tokenizer().save(str(tmp_path / "tokenizer.json"))
    question, passages = "how to rotate the key?", ["access key rotate: a long recipe.", "", "filler " * 400]

    ids, types = Pairs(tmp_path / "tokenizer.json").encode(question, passages)
    served = ModelTokenizer(tiny_tokenizer()).encode_pairs(question, passages, max_tokens=MAX_TOKENS, windows=1)

    for own, kinds, pair in zip(ids, types, served, strict=True):
        assert own == pair.windows[0].ids.tolist()
        assert kinds == pair.windows[0].type_ids.tolist()
    assert len(ids[2]) == MAX_TOKENS
