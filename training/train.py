"""Trains the cross-encoder: `python -m training.train --groups FOLDER --encoder FOLDER --into FOLDER`.

Needs PyTorch (requirements.txt), and nothing else of this repository but `training`. It can be stopped at any time and
goes on from its last checkpoint, with the same result as if it had not been stopped, but for the order of sums.

The loss is that of the order in which passages are served: probability and fused score, blended as the retriever does
(`training.blend`). A new head has no opinion, so training begins at the fused order and learns what to change in it.
Beside it, the logits alone must tell the right passage from the wrong ones (0.5), each by itself (0.1).
"""

import argparse
import json
import math
import os
import random
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.bert import CrossEncoder
from training.blend import PROBABILITY_WEIGHT
from training.focus import focus
from training.group import Group, read_groups
from training.pairs import Pairs

GROUPS_A_STEP = 4
FROZEN_LAYERS = 2
LEARNING_RATE = 1e-4
HEAD_LEARNING_RATE = 5e-4
WARM_UP_STEPS = 15
PASSAGES_A_GROUP = 3
"""The answer and the two wrong ones nearest to the top."""
WORDS_A_PASSAGE = 70
TEMPERATURE = 0.12
"""Of the blended scores, which reach 1 at most."""
SOFT_SHARE = 0.1
"""Of the target that goes by the fused scores: a wrong passage that both channels found may be half right."""
SOFT_TEMPERATURE = 0.2
LOGITS_SHARE = 0.5
EACH_SHARE = 0.1
THREADS = 1
"""On a machine that others use, two threads wait for each other most of the time, at four times the cost."""
AVERAGED = 0.99
"""Of the weights that are kept: an exponential average over the steps."""


def logits_of(model: CrossEncoder, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]], rows: int) -> Tensor:
    """Of each pair, in order; `rows` of like length at a time, so that little is padding."""
    order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
    parts = []
    for start in range(0, len(order), rows):
        drawn = order[start : start + rows]
        width = max(len(ids[place]) for place in drawn)
        padded = [torch.zeros(len(drawn), width, dtype=torch.long) for _ in range(3)]
        for row, place in enumerate(drawn):
            length = len(ids[place])
            padded[0][row, :length] = torch.tensor(ids[place])
            padded[1][row, :length] = 1
            padded[2][row, :length] = torch.tensor(types[place])
        parts.append(model(*padded))
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(parts)[back]


def loss_of(logits: Tensor, group: Group) -> Tensor:
    """Of one group."""
    fused = torch.tensor(group.fused)
    labels = torch.tensor(group.labels, dtype=torch.float32)
    blended = PROBABILITY_WEIGHT * torch.sigmoid(logits) + (1 - PROBABILITY_WEIGHT) * fused
    target = (1 - SOFT_SHARE) * labels / labels.sum() + SOFT_SHARE * torch.softmax(fused / SOFT_TEMPERATURE, 0)
    listwise = -(target * torch.log_softmax(blended / TEMPERATURE, 0)).sum()
    alone = -(target * torch.log_softmax(logits, 0)).sum()
    each = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return listwise + LOGITS_SHARE * alone + EACH_SHARE * each


def rate_at(step: int, steps: int) -> float:
    """Share of the learning rate: rises for WARM_UP_STEPS, then falls to nothing in a line."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(0.0, 1 - step / steps)


def chosen(groups: Sequence[Group], most: int | None, random_source: random.Random) -> list[Group]:
    """`most` groups, shuffled: as many in which the fused order is wrong as others, while there are both. Of the wrong
    ones alone it would be learnt that what is unlike the question answers it. Of each group, PASSAGES_A_GROUP
    passages, shortened."""
    shuffled = list(groups)
    random_source.shuffle(shuffled)
    kinds: tuple[list[Group], list[Group]] = ([], [])
    for group in shuffled:
        kinds[group.fused[group.labels.index(1)] >= max(group.fused)].append(group)
    taken = [group for pair in zip_longest(*kinds) for group in pair if group is not None]
    order = taken[:most]
    random_source.shuffle(order)
    return [
        Group(
            pool=group.pool,
            query=group.query,
            passages=tuple(
                focus(group.query, passage, most_words=WORDS_A_PASSAGE) for passage in group.passages[:PASSAGES_A_GROUP]
            ),
            fused=group.fused[:PASSAGES_A_GROUP],
            labels=group.labels[:PASSAGES_A_GROUP],
        )
        for group in order
    ]


class Run:
    """A training that can be stopped."""

    def __init__(self, encoder: Path, into: Path, *, seed: int) -> None:
        self.model = CrossEncoder.from_encoder(encoder, frozen_layers=FROZEN_LAYERS, seed=seed)
        head = [*self.model.bert.pooler.parameters(), *self.model.classifier.parameters()]
        known = {id(parameter) for parameter in head}
        body = [one for one in self.model.parameters() if one.requires_grad and id(one) not in known]
        self._optimizer = torch.optim.AdamW(
            [{"params": body, "peak": LEARNING_RATE}, {"params": head, "peak": HEAD_LEARNING_RATE}],
            lr=LEARNING_RATE,
            weight_decay=0.01,
        )
        self._trained = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        self.average = {name: self.model.state_dict()[name].clone() for name in self._trained}
        self.step = 0
        self.seconds = 0.0
        self._path = into / "checkpoint.pt"
        if self._path.is_file():
            self._load(torch.load(self._path, weights_only=True))

    def learn(self, logits: Tensor, groups: Sequence[Group], *, steps: int) -> float:
        """One step. Gives the loss."""
        sizes = [len(group.labels) for group in groups]
        losses = [loss_of(part, group) for part, group in zip(logits.split(sizes), groups, strict=True)]
        loss = torch.stack(losses).mean()
        for part in self._optimizer.param_groups:
            part["lr"] = part["peak"] * rate_at(self.step, steps)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([one for one in self.model.parameters() if one.requires_grad], 1.0)
        self._optimizer.step()
        state = self.model.state_dict()
        for name, kept in self.average.items():
            kept.lerp_(state[name], 1 - min(AVERAGED, (self.step + 1) / (self.step + 10)))
        self.step += 1
        return float(loss.detach())

    def averaged(self) -> dict[str, Tensor]:
        """The model's weights with those averaged in place of the last."""
        state: dict[str, Tensor] = self.model.state_dict() | self.average
        return state

    def save(self) -> None:
        """Writes a checkpoint, whole or not at all."""
        state = {
            "model": {name: self.model.state_dict()[name] for name in self._trained},
            "average": self.average,
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self._path)

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"], strict=False)
        self.average = state["average"]
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("--groups", type=Path, required=True, help="folder of train.jsonl")
    parser.add_argument("--encoder", type=Path, required=True, help="all-MiniLM-L6-v2 in Hugging Face's layout")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--most", type=int, help="groups to train with; all by default")
    parser.add_argument("--seed", type=int, default=20260)
    parser.add_argument("--threads", type=int, default=THREADS, help="of PyTorch; 1 by default")
    parser.add_argument("--checkpoint-seconds", type=float, default=120)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "pid").write_text(str(os.getpid()), encoding="utf-8")
    groups = list(read_groups(options.groups / "train.jsonl"))
    groups = chosen(groups, options.most, random.Random(options.seed))
    steps = math.ceil(len(groups) / GROUPS_A_STEP)
    pairs = Pairs(options.encoder / "tokenizer.json")
    run = Run(options.encoder, options.into, seed=options.seed)
    saved = told = time.monotonic()
    losses: list[float] = []
    firsts: list[float] = []
    while run.step < steps:
        started = time.monotonic()
        drawn = groups[run.step * GROUPS_A_STEP : (run.step + 1) * GROUPS_A_STEP]
        encoded = [pairs.encode(group.query, group.passages) for group in drawn]
        ids = [row for part, _ in encoded for row in part]
        types = [row for _, part in encoded for row in part]
        logits = logits_of(run.model, ids, types, 8)
        losses.append(run.learn(logits, drawn, steps=steps))
        firsts += [
            float(part.argmax() == group.labels.index(1))
            for part, group in zip(logits.split([len(group.labels) for group in drawn]), drawn, strict=True)
        ]
        now = time.monotonic()
        run.seconds += now - started
        if now - told > 30 or run.step == steps:
            fields = {
                "step": run.step,
                "of": steps,
                "loss": round(sum(losses) / len(losses), 4),
                "first": round(sum(firsts) / len(firsts), 3),
                "seconds": round(run.seconds),
            }
            print(json.dumps(fields), flush=True)
            losses, firsts, told = [], [], now
        if now - saved > options.checkpoint_seconds:
            run.save()
            saved = now
    run.save()
    run.model.save(options.into / "model", options.encoder / "tokenizer.json", max_tokens=256, state=run.averaged())


if __name__ == "__main__":
    main()
