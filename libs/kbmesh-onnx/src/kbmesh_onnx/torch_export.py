"""Any other encoder of transformers, traced by PyTorch: the extra kbmesh-onnx[torch].

The graph has the plain form only, with weights of its own beside it, and is held against PyTorch's forward pass.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kbmesh_onnx.errors import ExportError
from kbmesh_onnx.fingerprint import files_fingerprint
from kbmesh_onnx.folder import FORM_FILES, TOKENIZER_FILE, WEIGHTS_FILE, ModelCard, Verification, write_card
from kbmesh_onnx.golden import with_golden
from kbmesh_onnx.layout import SourceModel
from kbmesh_onnx.measurement import median_milliseconds
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer
from kbmesh_onnx.verification import TOLERANCE, Expected, Rows, verification_rows, verify
from kbmesh_onnx.weights import weight_files
from kbmesh_onnx.writing import whole_folder

OPSET = 18
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def export_with_torch(
    model: SourceModel, destination: Path, *, name: str, origin: str, progress: Callable[[str], None]
) -> ModelCard:
    """Export what `export_bert` does not know. The caller holds `writing.exclusive`.

    Only safetensors are read and no code of the source is run. Raises ExportError; without PyTorch it names the extra.
    """
    torch, transformers = _import_torch(model)
    fingerprint = files_fingerprint(model, weight_files(model.folder))
    progress("loading with PyTorch")
    module = _load(torch, transformers, model)
    with whole_folder(destination) as folder:
        shutil.copyfile(model.tokenizer, folder / TOKENIZER_FILE)
        card = ModelCard(
            name=name,
            kind=model.kind,
            architecture=str(model.config.get("model_type")),
            dimension=int(model.config.get("hidden_size") or model.config["dim"]),
            max_tokens=model.max_tokens,
            pooling=model.pooling,
            normalized=model.normalized,
            matryoshka_dimensions=model.matryoshka_dimensions,
            query_prefix=model.query_prefix,
            document_prefix=model.document_prefix,
            source=origin,
            fingerprint=fingerprint,
            verification=Verification(max_error=0.0, min_cosine=None, tolerance=TOLERANCE, reference="torch"),
            forms=("plain",),
        )
        rows = verification_rows(ModelTokenizer.load(folder, card), card.kind, card.max_tokens)
        progress("tracing with PyTorch")
        _trace(torch, module, rows, card, folder / FORM_FILES["plain"])
        progress("checking against the reference")
        expected = _reference_outputs(torch, module, rows, card)
        session = ModelSession.open(folder, card, device="cpu", form="plain")
        checked = verify(session, rows, expected, tolerance=TOLERANCE, reference="torch")
        vocabulary_size = int(model.config["vocab_size"])
        measured = median_milliseconds(
            {"plain": session}, kind=card.kind, vocabulary_size=vocabulary_size, max_tokens=card.max_tokens
        )
        session.close()
        card = replace(
            with_golden(card, expected),
            verification=checked,
            preferred_form={"cpu": "plain"},
            measured_ms={"cpu": measured},
            file_sizes={path.name: path.stat().st_size for path in sorted(folder.iterdir())},
        )
        write_card(folder, card)
    return card


def _import_torch(model: SourceModel) -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ExportError(
            f"model_type {model.config.get('model_type')!r} is exported by PyTorch, which is not installed: "
            "pip install 'kbmesh-onnx[torch]'"
        ) from error
    return torch, transformers


def _load(torch: Any, transformers: Any, model: SourceModel) -> Any:
    loader = transformers.AutoModel if model.kind == "encoder" else transformers.AutoModelForSequenceClassification
    try:
        inner = loader.from_pretrained(
            str(model.folder),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="eager",
            torch_dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError) as error:
        raise ExportError(f"transformers cannot load {model.folder}: {error}") from error
    return _wrapper(torch, inner, model).eval()


def _wrapper(torch: Any, inner: Any, model: SourceModel) -> Any:
    """Put pooling and normalisation behind the model, under the names that every kbmesh graph has."""
    takes_segments = int(model.config.get("type_vocab_size") or 0) > 1

    class Wrapped(torch.nn.Module):  # type: ignore[misc] # torch is absent where this is type-checked
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            # Models of one segment take none; the input stays in the graph, so that all graphs are called alike.
            zeros = (token_type_ids * 0).to(attention_mask.dtype)
            segments = {"token_type_ids": token_type_ids} if takes_segments else {}
            found = self.inner(input_ids=input_ids, attention_mask=attention_mask + zeros, **segments)
            if model.kind == "cross_encoder":
                return found.logits
            read = attention_mask.unsqueeze(-1).to(found.last_hidden_state.dtype)
            tokens = found.last_hidden_state * read
            pooled = tokens[:, 0] if model.pooling == "cls" else tokens.sum(1) / read.sum(1).clamp(min=1e-9)
            if model.normalized:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            return pooled, tokens

    return Wrapped()


def _trace(torch: Any, module: Any, rows: Rows, card: ModelCard, path: Path) -> None:
    outputs = ["embeddings", "token_embeddings"] if card.kind == "encoder" else ["logits"]
    axes = {each: {0: "batch", 1: "tokens"} for each in [*INPUTS, "token_embeddings"]}
    axes |= {each: {0: "batch"} for each in ("embeddings", "logits")}
    arguments = tuple(torch.from_numpy(array) for array in (rows.ids, rows.mask, rows.type_ids))
    # The older exporter: its graphs are the ones that ONNX Runtime still fuses when it loads them.
    torch.onnx.export(
        module,
        arguments,
        str(path),
        input_names=INPUTS,
        output_names=outputs,
        dynamic_axes={each: axes[each] for each in [*INPUTS, *outputs]},
        opset_version=OPSET,
        dynamo=False,
    )
    _move_weights_out(path)


def _move_weights_out(path: Path) -> None:
    import onnx

    graph = onnx.load(path)
    onnx.save_model(graph, path, save_as_external_data=True, all_tensors_to_one_file=True, location=WEIGHTS_FILE)


def _reference_outputs(torch: Any, module: Any, rows: Rows, card: ModelCard) -> Expected:
    """Run PyTorch over each text alone, without padding."""
    found = []
    with torch.inference_mode():
        for text in rows.texts:
            ids, types = (torch.from_numpy(array[None]) for array in (text.ids, text.type_ids))
            found.append(module(ids, torch.ones_like(ids), types))
    if card.kind == "cross_encoder":
        return Expected(outputs={"logits": [each.numpy()[0].astype(np.float32) for each in found]})
    return Expected(
        outputs={
            "embeddings": [each[0].numpy()[0] for each in found],
            "token_embeddings": [each[1].numpy()[0] for each in found],
        }
    )
