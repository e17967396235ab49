"""The model folder: what is in it, and the card that describes it (kbmesh.json).

docs/models-folder.md describes the format.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from kbmesh_onnx.errors import ModelFolderError

CARD_FILE = "kbmesh.json"
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_FILE = "model.onnx.data"
INT8_FILE = "model.int8.onnx"
SCHEMA_VERSION = 1
MAX_NUMBER = 2**31 - 1
"""Largest number that a card may state: messages carry it in 32 bits."""

Kind = Literal["encoder", "cross_encoder"]
Pooling = Literal["mean", "cls"]
Form = Literal["fused", "plain"]

FORM_FILES: Mapping[Form, str] = MappingProxyType({"plain": "model.onnx", "fused": "model.fused.onnx"})


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How far the ONNX model is from the reference forward pass, the worse of its forms."""

    max_error: float
    """Largest difference of one number, relative to the largest number of that output where it exceeds 1."""
    min_cosine: float | None
    """Smallest cosine of a vector with the reference's. None for a cross-encoder."""
    tolerance: float
    """What `max_error` may be at most."""
    reference: str = "numpy"
    """What ran the reference forward pass."""


@dataclass(frozen=True, kw_only=True)
class Int8Proof:
    """What the int8 file of a model is, and how far it is from single precision on the texts of the proof."""

    fingerprint: str
    """SHA-256 of the model's fingerprint and the file. Vectors of int8 are not compared with those of fp32."""
    min_cosine: float | None
    """Smallest cosine of a vector with that of fp32. None for a cross-encoder, as are the next two."""
    p1_cosine: float | None
    """The first percentile."""
    mean_cosine: float | None
    fragment_cosine: float | None
    """The smallest of fragments, down to a single character; the others are of passages. None for a cross-encoder."""
    max_difference: float
    """Largest difference of one number of the vectors, or of a logit, relative to the range of the logits."""
    kendall_tau: float | None
    """Agreement in the order of the pairs, from -1 to 1. None for an encoder."""
    batch_error: float
    """Largest difference of one number of the output between a text alone and the same text among others."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """What the model gave for a few texts when it was proven, by which a start tells whether it still does."""

    texts: tuple[str, ...]
    """Without a prefix. A cross-encoder reads each with the first as the query."""
    outputs: tuple[tuple[float, ...], ...]
    """A vector for each text, or its logit."""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Everything that one has to know of a model without opening it."""

    name: str
    """Name to ask for the model by; also the name of its folder."""
    kind: Kind
    """An encoder gives vectors, a cross-encoder a logit for a pair."""
    architecture: str
    """The source's model type, such as "bert"."""
    dimension: int
    """Numbers a vector; hidden size of a cross-encoder."""
    max_tokens: int
    """Tokens the model reads at most, special ones and prefix included."""
    pooling: Pooling
    """How token vectors become one vector. "cls" for a cross-encoder."""
    normalized: bool
    """Whether vectors have unit length."""
    matryoshka_dimensions: tuple[int, ...] = ()
    """Sizes to which vectors may be shortened, largest first."""
    query_prefix: str = ""
    """Put before a query."""
    document_prefix: str = ""
    """Put before a passage."""
    source: str = ""
    """Where the weights came from: a hub id or a folder's name."""
    fingerprint: str
    """SHA-256 of weights, tokenizer, pooling, normalisation, prefixes and limit, in hexadecimal."""
    verification: Verification
    """Proof of the export."""
    preferred_form: Mapping[str, Form] = field(default_factory=dict)
    """The faster form on each device that was measured, as {"cpu": "fused"}."""
    measured_ms: Mapping[str, Mapping[Form, float]] = field(default_factory=dict)
    """Median milliseconds of each form on each device, as {"cpu": {"fused": 120.0, "plain": 125.0}}."""
    forms: tuple[Form, ...] = ("plain", "fused")
    """The forms that are in the folder."""
    file_sizes: Mapping[str, int] = field(default_factory=dict)
    """Size of each file in bytes, by which a half-copied folder is noticed."""
    int8: Int8Proof | None = None
    """Proof of the int8 file. None where there is no such file."""
    golden: Golden | None = None
    """None in folders of before it was kept."""

    def fingerprint_in(self, precision: str) -> str:
        """The fingerprint of what a precision gives: int8 has one of its own, fp16 is as good as fp32."""
        return self.int8.fingerprint if precision == "int8" and self.int8 is not None else self.fingerprint


def load_card(folder: Path) -> ModelCard:
    """Read a model folder's card and check that the folder is complete.

    Raises ModelFolderError, which says what is wrong: no folder, no card, a card that cannot be read, another schema
    version, or a file that is absent or of another size.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder")
    path = folder / CARD_FILE
    if not path.is_file():
        raise ModelFolderError(f"{folder} has no {CARD_FILE}; export or pull the model into it")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
    card = _from_json(data, path)
    _check_files(folder, card)
    return card


def write_card(folder: Path, card: ModelCard) -> None:
    """Write `card` into `folder` as its last file: a folder with a card is complete."""
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for name in ModelCard.__dataclass_fields__:
        value = getattr(card, name)
        data[name] = dict(value) if isinstance(value, Mapping) else value
    data["verification"] = {name: getattr(card.verification, name) for name in Verification.__dataclass_fields__}
    if card.int8 is None:
        del data["int8"]
    else:
        data["int8"] = asdict(card.int8)
    if card.golden is None:
        del data["golden"]
    else:
        data["golden"] = asdict(card.golden)
    data["measured_ms"] = {device: dict(times) for device, times in card.measured_ms.items()}
    temporary = folder / f".{CARD_FILE}.partial"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / CARD_FILE)


def list_models(models_folder: Path) -> dict[str, ModelCard]:
    """Give the card of every complete model folder directly under `models_folder`, by the folder's name, sorted.

    Folders whose name begins with a dot are exports in the making. A folder without a card is not a model; one with a
    broken card raises ModelFolderError.
    """
    if not models_folder.is_dir():
        return {}
    return {
        path.name: load_card(path)
        for path in sorted(models_folder.iterdir())
        if not path.name.startswith(".") and (path / CARD_FILE).is_file()
    }


def _from_json(data: object, path: Path) -> ModelCard:
    if not isinstance(data, dict):
        raise ModelFolderError(f"{path} is not a JSON object")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ModelFolderError(
            f"{path} has schema version {version!r}; this kbmesh reads {SCHEMA_VERSION}: export the model again"
        )
    read = _Reader(cast("dict[str, Any]", data), path)
    checked = _Reader(read.typed("verification", dict), path)
    forms = tuple(cast("Form", read.one_of(form, "forms", ("plain", "fused"))) for form in read.typed("forms", list))
    if not forms:
        raise ModelFolderError(f"{path}: forms is empty")
    cosine = checked.data.get("min_cosine")
    return ModelCard(
        name=read.typed("name", str),
        kind=cast("Kind", read.one_of(read.typed("kind", str), "kind", ("encoder", "cross_encoder"))),
        architecture=read.typed("architecture", str),
        dimension=read.positive("dimension"),
        max_tokens=read.positive("max_tokens"),
        pooling=cast("Pooling", read.one_of(read.typed("pooling", str), "pooling", ("mean", "cls"))),
        normalized=read.typed("normalized", bool),
        matryoshka_dimensions=read.sizes("matryoshka_dimensions", most=read.positive("dimension")),
        query_prefix=read.typed("query_prefix", str),
        document_prefix=read.typed("document_prefix", str),
        source=read.typed("source", str),
        fingerprint=read.fingerprint(),
        verification=Verification(
            max_error=checked.number("max_error"),
            min_cosine=None if cosine is None else checked.number("min_cosine"),
            tolerance=checked.number("tolerance"),
            reference=checked.typed("reference", str),
        ),
        preferred_form={
            device: cast("Form", read.one_of(form, "preferred_form", forms))
            for device, form in read.typed("preferred_form", dict).items()
        },
        measured_ms={
            device: {
                cast("Form", read.one_of(form, "measured_ms", forms)): float(milliseconds)
                for form, milliseconds in times.items()
            }
            for device, times in read.typed("measured_ms", dict).items()
        },
        forms=forms,
        file_sizes={name: int(size) for name, size in read.typed("file_sizes", dict).items()},
        int8=_int8_proof(_Reader(read.typed("int8", dict), path)) if data.get("int8") is not None else None,
        golden=_golden(_Reader(read.typed("golden", dict), path)) if data.get("golden") is not None else None,
    )


def _golden(read: "_Reader") -> Golden:
    texts, outputs = read.typed("texts", list), read.typed("outputs", list)
    rows = all(isinstance(row, list) and all(isinstance(each, int | float) for each in row) for row in outputs)
    if not texts or len(texts) != len(outputs) or not rows or not all(isinstance(text, str) for text in texts):
        raise ModelFolderError(f"{read.path}: golden has not a row of numbers for each text")
    return Golden(texts=tuple(texts), outputs=tuple(tuple(map(float, row)) for row in outputs))


def _int8_proof(read: "_Reader") -> Int8Proof:
    return Int8Proof(
        fingerprint=read.fingerprint(),
        min_cosine=read.optional_number("min_cosine"),
        p1_cosine=read.optional_number("p1_cosine"),
        mean_cosine=read.optional_number("mean_cosine"),
        fragment_cosine=read.optional_number("fragment_cosine"),
        max_difference=read.number("max_difference"),
        kendall_tau=read.optional_number("kendall_tau"),
        batch_error=read.number("batch_error"),
    )


@dataclass(frozen=True)
class _Reader:
    data: dict[str, Any]
    path: Path

    def typed(self, name: str, kind: type) -> Any:
        value = self.data.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelFolderError(f"{self.path}: {name} is {value!r}, not a {kind.__name__}")
        if isinstance(value, str) and not _is_unicode(value):
            raise ModelFolderError(f"{self.path}: {name} is {value!r}, which no message can carry")
        return value

    def positive(self, name: str) -> int:
        value = self.typed(name, int)
        if not 0 < value <= MAX_NUMBER:
            raise ModelFolderError(f"{self.path}: {name} is {value}, not from 1 to {MAX_NUMBER}")
        return int(value)

    def sizes(self, name: str, *, most: int) -> tuple[int, ...]:
        sizes = tuple(self.typed(name, list))
        for size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= most:
                raise ModelFolderError(f"{self.path}: {name} holds {size!r}, which is not a size from 1 to {most}")
        return sizes

    def fingerprint(self) -> str:
        # Without one nobody could tell this model's vectors from another's.
        fingerprint = self.typed("fingerprint", str)
        if not fingerprint.strip():
            raise ModelFolderError(f"{self.path}: fingerprint is empty")
        return str(fingerprint)

    def number(self, name: str) -> float:
        value = self.data.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelFolderError(f"{self.path}: {name} is {value!r}, not a number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self.data.get(name) is None else self.number(name)

    def one_of(self, value: object, name: str, choices: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ModelFolderError(f"{self.path}: {name} is {value!r}, not one of {', '.join(choices)}")
        return value


def _is_unicode(text: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_files(folder: Path, card: ModelCard) -> None:
    for name in (TOKENIZER_FILE, *(FORM_FILES[form] for form in card.forms), *card.file_sizes):
        path = folder / name
        if not path.is_file():
            raise ModelFolderError(f"{folder} has no {name}; pull or export the model again")
        expected = card.file_sizes.get(name)
        if expected is not None and path.stat().st_size != expected:
            raise ModelFolderError(
                f"{path} has {path.stat().st_size} bytes instead of {expected}: it was not copied whole"
            )
