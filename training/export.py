"""From what was trained to a model folder: `python -m training.export --model FOLDER --development FILE`.

How strongly the model may speak is chosen here, on questions that it was not trained with: its logits are scaled by
one number, which goes into the weights of its last layer. The fused order decides where a scaled model is unsure, so a
small number means little harm and little gain.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from kbmesh_cli.bootstrap import mean
from kbmesh_cli.relevance import ndcg_at
from kbmesh_onnx.export import export_model
from kbmesh_onnx.folder import load_card
from kbmesh_onnx.int8 import write_int8
from safetensors.numpy import load_file, save_file

from training.blend import blended, order_of
from training.group import Group, read_groups
from training.scores import CrossEncoder

NAME = "starter-cross-encoder"
SCALES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
CUTOFF = 10


def choose_scale(logits: Sequence[Sequence[float]], groups: Sequence[Group]) -> tuple[float, dict[float, float]]:
    """The scale whose mean gain over the pools is largest, among those that lower no pool by more than they would by
    chance; the smallest where there is none. And the gain of each."""
    gains = {scale: gains_of(logits, groups, scale) for scale in SCALES}
    harmless = [scale for scale, of_pools in gains.items() if all(_harmless(values) for values in of_pools.values())]
    means = {scale: mean([mean(values) for values in of_pools.values()]) for scale, of_pools in gains.items()}
    return max(harmless or SCALES[:1], key=lambda scale: means[scale]), means


def first_of_each_pool(groups: Sequence[Group], most: int | None) -> list[Group]:
    """`most` of each pool, in their order."""
    taken: dict[str, int] = defaultdict(int)
    kept = []
    for group in groups:
        if most is None or taken[group.pool] < most:
            taken[group.pool] += 1
            kept.append(group)
    return kept


def gains_of(logits: Sequence[Sequence[float]], groups: Sequence[Group], scale: float) -> dict[str, list[float]]:
    """What the blend adds to the nDCG of the fused order, by pool, for each question."""
    gains: dict[str, list[float]] = defaultdict(list)
    for own, group in zip(logits, groups, strict=True):
        scores = blended([scale * logit for logit in own], group.fused)
        gains[group.pool].append(_ndcg(scores.tolist(), group) - _ndcg(group.fused, group))
    return gains


def _ndcg(scores: Sequence[float], group: Group) -> float:
    judgements = {str(place): label for place, label in enumerate(group.labels)}
    return ndcg_at(CUTOFF, [str(place) for place in order_of(scores)], judgements)


def _harmless(gains: Sequence[float]) -> bool:
    """Not lower than its own standard error below nothing."""
    return mean(gains) >= -float(np.std(gains)) / math.sqrt(max(1, len(gains)))


def scaled(model: Path, destination: Path, scale: float) -> None:
    """The model with its logits times `scale`."""
    tensors: Mapping[str, np.ndarray] = load_file(model / "model.safetensors")
    changed = {
        name: tensor * np.float32(scale) if name.startswith("classifier.") else tensor
        for name, tensor in tensors.items()
    }
    destination.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (destination / name).write_bytes((model / name).read_bytes())
    save_file(changed, destination / "model.safetensors", metadata={"format": "pt"})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m training.export", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="what training.train wrote")
    parser.add_argument("--development", type=Path, required=True, help="development.jsonl of training.groups")
    parser.add_argument("--models", type=Path, default=Path.home() / ".kbmesh" / "models")
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--most", type=int, help="questions of each pool; all by default")
    options = parser.parse_args(arguments)
    groups = first_of_each_pool(list(read_groups(options.development)), options.most)
    with TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        export_model(options.model, whole, name="whole", origin=options.name)
        model = CrossEncoder(whole, precision="fp32")
        logits = [model.score(group.query, group.passages) for group in groups]
        model.close()
        scale, means = choose_scale(logits, groups)
        by_pool = {name: round(mean(values), 4) for name, values in gains_of(logits, groups, scale).items()}
        print(json.dumps({"scale": scale, "gain": {str(one): round(gain, 4) for one, gain in means.items()}}))
        print(json.dumps(by_pool))
        scaled(options.model, Path(place) / "scaled", scale)
        export_model(Path(place) / "scaled", options.models / options.name, name=options.name, origin=options.name)
    write_int8(options.models / options.name)
    card = load_card(options.models / options.name)
    print(json.dumps({"fingerprint": card.fingerprint, "int8": None if card.int8 is None else str(card.int8)}))


if __name__ == "__main__":
    main()
