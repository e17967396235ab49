"""From a model in Hugging Face's layout to a model folder, without PyTorch."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from kbmesh_onnx.architecture import BertArchitecture, is_bert, read_architecture
from kbmesh_onnx.errors import ExportError, ModelFolderError
from kbmesh_onnx.fingerprint import bert_fingerprint
from kbmesh_onnx.folder import FORM_FILES, TOKENIZER_FILE, WEIGHTS_FILE, Form, ModelCard, Verification, write_card
from kbmesh_onnx.golden import with_golden
from kbmesh_onnx.graph_bert import build_bert
from kbmesh_onnx.layout import ModelSettings, SourceModel, read_layout
from kbmesh_onnx.measurement import median_milliseconds
from kbmesh_onnx.reference import BertReference
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_onnx.verification import TOLERANCE, Expected, Rows, verification_rows, verify, worse
from kbmesh_onnx.weights import Weights
from kbmesh_onnx.weights_file import write_weights
from kbmesh_onnx.writing import exclusive, whole_folder

Progress = Callable[[str], None]
"""Is told each stage in a few words."""

FORMS: tuple[Form, ...] = ("plain", "fused")


@dataclass(frozen=True, kw_only=True)
class BertSource:
    """A BERT that was read and found complete, not yet exported."""

    name: str
    model: SourceModel
    architecture: BertArchitecture
    weights: Weights
    fingerprint: str


def export_model(
    source: Path | str,
    destination: Path,
    *,
    name: str | None = None,
    origin: str | None = None,
    settings: ModelSettings | None = None,
    progress: Progress | None = None,
) -> ModelCard:
    """Export the model in the folder `source` to the model folder `destination`, and prove it.

    `name` is the destination's unless given; `origin` is what the card gives as source, the source folder's name
    unless given. `settings` override what the source says of itself. BERT encoders and cross-encoders are written
    directly; other architectures need the extra kbmesh-onnx[torch]. An existing destination is replaced once the new
    one is proven. Needs about three times the memory of the weights. Raises ExportError, which names what stands in
    the way, and leaves no half folder.
    """
    source, destination = Path(source), Path(destination)
    name = name or destination.name
    model = read_layout(source, origin or source.resolve().name, settings or ModelSettings())
    report = progress or (lambda stage: None)
    with exclusive(destination):
        if not is_bert(model.config):
            from kbmesh_onnx.torch_export import export_with_torch

            return export_with_torch(model, destination, name=name, origin=origin or source.name, progress=report)
        report("reading weights")
        return export_bert(read_bert(model, name), destination, origin=origin or source.resolve().name, progress=report)


def read_bert(model: SourceModel, name: str) -> BertSource:
    """Read a BERT's weights once: find them complete and finite, and compute the fingerprint. Raises ExportError."""
    architecture = read_architecture(model.config)
    weights = Weights(model.folder)
    shapes = architecture.tensor_shapes(model.kind)
    weights.check(shapes)
    fingerprint = bert_fingerprint(model, architecture, weights.finite(iter(shapes)))
    return BertSource(name=name, model=model, architecture=architecture, weights=weights, fingerprint=fingerprint)


def export_bert(source: BertSource, destination: Path, *, origin: str, progress: Progress) -> ModelCard:
    """Write, prove and measure a BERT. The caller holds `writing.exclusive`. Raises ExportError."""
    model = source.model
    with whole_folder(destination) as folder:
        progress("writing graphs")
        shutil.copyfile(model.tokenizer, folder / TOKENIZER_FILE)
        stored = write_weights(folder / WEIGHTS_FILE, source.weights, source.architecture, model.kind)
        for form in FORMS:
            graph = build_bert(
                source.architecture,
                stored,
                kind=model.kind,
                form=form,
                pooling=model.pooling,
                normalized=model.normalized,
            )
            (folder / FORM_FILES[form]).write_bytes(graph.SerializeToString())
        onnx.checker.check_model(folder / FORM_FILES["plain"], full_check=True)
        card = ModelCard(
            name=source.name,
            kind=model.kind,
            architecture="bert",
            dimension=source.architecture.hidden_size,
            max_tokens=model.max_tokens,
            pooling=model.pooling,
            normalized=model.normalized,
            matryoshka_dimensions=model.matryoshka_dimensions,
            query_prefix=model.query_prefix,
            document_prefix=model.document_prefix,
            source=origin,
            fingerprint=source.fingerprint,
            verification=Verification(max_error=0.0, min_cosine=None, tolerance=TOLERANCE),
            forms=FORMS,
            file_sizes={path.name: path.stat().st_size for path in sorted(folder.iterdir())},
        )
        progress("checking against the reference")
        card = prove(folder, card, source)
        write_card(folder, card)
    return card


def prove(folder: Path, card: ModelCard, source: BertSource) -> ModelCard:
    """Hold every form against NumPy, then measure which is faster. Raises ExportError."""
    try:
        tokenizer = ModelTokenizer.load(folder, card)
        rows = verification_rows(tokenizer, card.kind, card.max_tokens)
        expected = reference_outputs(source, rows)
        sessions = {form: ModelSession.open(folder, card, device="cpu", form=form) for form in card.forms}
    except ModelFolderError as error:
        raise ExportError(f"what was written cannot be read: {error}") from error
    checked = [verify(session, rows, expected, tolerance=TOLERANCE, reference="numpy") for session in sessions.values()]
    measured = median_milliseconds(
        sessions, kind=card.kind, vocabulary_size=source.architecture.vocabulary_size, max_tokens=card.max_tokens
    )
    for session in sessions.values():
        session.close()
    return replace(
        with_golden(card, expected),
        verification=worse(*checked),
        preferred_form={"cpu": min(measured, key=lambda form: measured[form])},
        measured_ms={"cpu": measured},
    )


def reference_outputs(source: BertSource, rows: Rows) -> Expected:
    """Run the NumPy forward pass over the rows."""
    reference = BertReference(source.architecture, source.weights)
    hidden = reference.hidden_states([text.ids for text in rows.texts], [text.type_ids for text in rows.texts])
    if source.model.kind == "cross_encoder":
        return Expected(outputs={"logits": reference.logits(hidden)})
    pooled = [reference.embedding(each, source.model.pooling, source.model.normalized) for each in hidden]
    return Expected(outputs={"embeddings": pooled, "token_embeddings": hidden})
