"""Training can be stopped and goes on where it was. Needs PyTorch, which is installed for training alone."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tiny_models import write_tiny_encoder

from training.group import Group, write_groups

torch = pytest.importorskip("torch", reason="PyTorch is installed for training alone: training/requirements.txt")

QUESTIONS = ("reset the password", "rotate the key", "a cake recipe", "where is the dog")
PASSAGES = ("the user password", "access key rotate", "lemon cake recipe", "lazy dog over the fox")


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    folder = tmp_path / "groups"
    folder.mkdir()
    made = [
        Group(
            pool="p",
            query=question,
            passages=(PASSAGES[number], *(passage for passage in PASSAGES if passage != PASSAGES[number])),
            fused=(0.5, 1.0, 0.4, 0.1),
            labels=(1, 0, 0, 0),
        )
        for number, question in enumerate(QUESTIONS)
    ]
    write_groups(folder / "train.jsonl", made * 15)
    return folder


def trained(groups: Path, encoder: Path, into: Path, *, stop_after: int | None = None) -> Path:
    from training import train

    arguments = ["--groups", str(groups), "--encoder", str(encoder), "--into", str(into), "--checkpoint-seconds", "0"]
    if stop_after is None:
        train.main(arguments)
        return into / "model" / "model.safetensors"

    class Stopped(Exception):
        """As by a signal."""

    learn = train.Run.learn

    def stopping(self: train.Run, *rest: object, **named: object) -> float:
        if self.step == stop_after:
            raise Stopped
        return float(learn(self, *rest, **named))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Run, "learn", stopping)
        with pytest.raises(Stopped):
            train.main(arguments)
    return trained(groups, encoder, into)


def test_a_training_that_was_stopped_ends_with_the_same_weights(groups: Path, tmp_path: Path) -> None:
    encoder = write_tiny_encoder(tmp_path / "encoder")

    whole = load_file(trained(groups, encoder, tmp_path / "whole"))
    stopped = load_file(trained(groups, encoder, tmp_path / "stopped", stop_after=4))

    assert whole.keys() == stopped.keys()
    for name, tensor in whole.items():
        assert stopped[name] == pytest.approx(tensor, abs=1e-5), name


def test_the_embeddings_stay_and_the_last_layer_moves(groups: Path, tmp_path: Path) -> None:
    encoder = write_tiny_encoder(tmp_path / "encoder")
    before = load_file(encoder / "model.safetensors")
    after = load_file(trained(groups, encoder, tmp_path / "run"))

    words = "embeddings.word_embeddings.weight"
    assert (after[f"bert.{words}"] == before[words]).all()
    inner = "encoder.layer.1.intermediate.dense.weight"
    assert (after[f"bert.{inner}"] != before[inner]).any()


def test_it_begins_at_the_fused_order() -> None:
    """A model without an opinion has the loss of the fused order, and is moved towards the answer alone."""
    from training.train import loss_of

    group = Group(pool="p", query="q", passages=("a", "b"), fused=(0.2, 1.0), labels=(1, 0))
    logits = torch.zeros(2, requires_grad=True)
    loss_of(logits, group).backward()

    assert logits.grad[0] < 0 < logits.grad[1]


def test_the_rate_rises_and_falls_to_nothing() -> None:
    from training.train import WARM_UP_STEPS, rate_at

    rates = [rate_at(step, 200) for step in range(201)]
    assert rates[0] < rates[WARM_UP_STEPS - 1]
    assert max(rates) <= 1
    assert rates[-1] == 0


def test_groups_are_half_of_those_that_the_fused_order_has_wrong() -> None:
    """While there are both; each with the answer and the wrong passages nearest to the top."""
    import random

    from training.train import PASSAGES_A_GROUP, chosen

    right = Group(
        pool="right", query="q", passages=("a", "b", "c", "d"), fused=(1.0, 0.5, 0.2, 0.1), labels=(1, 0, 0, 0)
    )
    wrong = Group(
        pool="wrong", query="q", passages=("a", "b", "c", "d"), fused=(0.5, 1.0, 0.2, 0.1), labels=(1, 0, 0, 0)
    )
    drawn = chosen([right] * 30 + [wrong] * 10, 16, random.Random(1))

    assert sorted(group.pool for group in drawn) == ["right"] * 8 + ["wrong"] * 8
    assert all(len(group.passages) == len(group.labels) == PASSAGES_A_GROUP for group in drawn)
    assert len(chosen([right] * 30 + [wrong] * 10, None, random.Random(1))) == 40
