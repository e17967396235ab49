"""Somebody who has to choose a model measures those of this machine on a set of his own."""

import json
import tarfile
from pathlib import Path

import pytest
from cli.command import Kbmesh
from kbmesh_cli.comparison import Questions, sample
from kbmesh_onnx.export import export_model
from tiny_models import write_tiny_cross_encoder, write_tiny_encoder

TOPICS = {
    "d1": ("reset", "how to reset a password of a user account"),
    "d2": ("cake", "a cake recipe with lemon"),
    "d3": ("fox", "the fox jumps over the lazy dog"),
    "d4": ("server", "the port of a server is long"),
}
QUERIES = {"q1": ("password reset", "d1"), "q2": ("lemon cake recipe", "d2"), "q3": ("lazy dog fox", "d3")}


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A set in BEIR's layout."""
    folder = tmp_path / "judged"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": name, "title": title, "text": text} for name, (title, text) in TOPICS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    queries = [{"_id": name, "text": text} for name, (text, _) in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries))
    lines = [f"{name}\t{document}\t1" for name, (_, document) in QUERIES.items()]
    (folder / "qrels/test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Models where the command of these tests looks for them."""
    folder = tmp_path / "home/models"
    folder.mkdir(parents=True)
    export_model(write_tiny_encoder(tmp_path / "encoder"), folder / "tiny")
    export_model(write_tiny_cross_encoder(tmp_path / "cross-encoder"), folder / "tiny-ce")
    return folder


async def test_an_encoder_and_a_cross_encoder_on_a_set(kbmesh: Kbmesh, models: Path, judged: Path) -> None:
    done = await kbmesh("models", "compare", "tiny", "tiny-ce", "--data", judged, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["documents"], found["queries"], found["compared_to"]) == (4, 3, "tiny")
    encoder, cross_encoder = found["models"]["tiny"], found["models"]["tiny-ce"]
    assert encoder["recall@20"] == 1
    assert 0 < encoder["ndcg@10"]["low"] <= encoder["ndcg@10"]["estimate"] <= encoder["ndcg@10"]["high"] <= 1
    assert encoder["texts_per_second"] > 0
    assert encoder["difference"] is None
    assert cross_encoder["recall@20"] is None
    assert cross_encoder["kind"] == "cross_encoder"
    difference = cross_encoder["difference"]["estimate"]
    assert difference == pytest.approx(cross_encoder["ndcg@10"]["estimate"] - encoder["ndcg@10"]["estimate"], abs=1e-4)

    again = await kbmesh("models", "compare", "tiny", "tiny-ce", "--data", judged, "--json")
    for name, each in json.loads(again.out)["models"].items():
        assert each["ndcg@10"] == found["models"][name]["ndcg@10"], "the same data give the same figures"


async def test_without_a_set_speed_and_size_alone(kbmesh: Kbmesh, models: Path) -> None:
    done = await kbmesh("models", "compare", "tiny-ce", "tiny")
    assert done.code == 0, done.err
    assert "texts/s" in done.out
    assert "nDCG" not in done.out


async def test_a_set_may_be_an_archive(kbmesh: Kbmesh, models: Path, judged: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "judged.tar.gz", "w:gz") as archive:
        archive.add(judged, "judged")
    done = await kbmesh("models", "compare", "tiny", "--data", tmp_path / "judged.tar.gz")
    assert done.code == 0, done.err
    assert "nDCG@10" in done.out


@pytest.mark.parametrize(
    ("arguments", "reason", "word"),
    [
        (["absent"], "MODEL_NOT_FOUND", "models list"),
        (["tiny:fp8"], "USAGE", "int8"),
        (["tiny", "tiny"], "USAGE", "twice"),
        (["tiny:int8"], "MODEL_BROKEN", "int8"),
        (["tiny-ce", "tiny"], "USAGE", "encoder"),
        (["tiny", "--split", "dev"], "DATASET_UNREADABLE", "dev"),
    ],
)
async def test_what_cannot_be_compared_is_said(
    kbmesh: Kbmesh, models: Path, judged: Path, arguments: list[str], reason: str, word: str
) -> None:
    done = await kbmesh("models", "compare", *arguments, "--data", judged)
    assert done.code != 0
    assert reason in done.err
    assert word in done.err


def test_a_sample_keeps_what_is_relevant() -> None:
    whole = Questions(
        documents={f"d{number}": "text" for number in range(100)},
        queries={f"q{number}": "text" for number in range(20)},
        judgements={f"q{number}": {f"d{number}": 1, f"d{number + 50}": 0} for number in range(20)},
    )
    part = sample(whole, queries=5, documents=12, seed=1)
    assert len(part.queries) == 5
    assert len(part.documents) == 12
    assert {f"d{query[1:]}" for query in part.queries} <= set(part.documents)
    assert list(part.documents) == [name for name in whole.documents if name in part.documents], "the order stays"
    assert sample(whole, queries=5, documents=12, seed=1) == part
