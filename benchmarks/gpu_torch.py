"""The same model in PyTorch on the same device, where PyTorch and transformers are installed."""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kbmesh_onnx.folder import Pooling
from numpy.typing import NDArray

Batch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
NEEDED = ("torch", "transformers")


def missing() -> list[str]:
    """What is not installed of what it needs."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def versions() -> dict[str, str]:
    """Versions of what it needs."""
    return {name: importlib.metadata.version(name) for name in NEEDED}


class TorchEncoder:
    """A model in Hugging Face's layout, with PyTorch's own attention, in "bfloat16", "float16" or "float32"."""

    def __init__(self, source: Path, *, device: str, element: str, pooling: Pooling, normalized: bool) -> None:
        import torch
        from transformers import AutoModel

        self._torch: Any = torch
        self._device, self._pooling, self._normalized = device, pooling, normalized
        model = AutoModel.from_pretrained(str(source), dtype=getattr(torch, element), attn_implementation="sdpa")
        self._model: Any = model.eval().to(device)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """(n, dimension) float32, back on the host."""
        torch = self._torch
        with torch.inference_mode():
            ids, mask, types = (torch.from_numpy(array).to(self._device, non_blocking=True) for array in batch)
            hidden = self._model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state.float()
            if self._pooling == "mean":
                read = mask.unsqueeze(2).float()
                pooled = (hidden * read).sum(1) / read.sum(1)
            else:
                pooled = hidden[:, 0]
            if self._normalized:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            vectors: NDArray[np.float32] = pooled.cpu().numpy()
            return vectors


def elements(device: str) -> Sequence[str]:
    """What is worth measuring on a device: half precision is for those that have it."""
    return ("bfloat16", "float16") if device.startswith("cuda") else ("float32",)
