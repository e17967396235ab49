"""Opening a model folder on the device that was asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbmesh_onnx.device_settings import DEFAULT_SETTINGS, DeviceSettings
from kbmesh_onnx.errors import DeviceUnavailable, ModelFolderError
from kbmesh_onnx.folder import Kind, ModelCard, load_card
from kbmesh_onnx.session import ModelSession
from kbmesh_onnx.tokenizer import ModelTokenizer

from kbmesh_reranker.backends.port import Method, ModelDescription


@dataclass(frozen=True, kw_only=True)
class OpenModel:
    """A model folder, loaded."""

    name: str
    card: ModelCard
    tokenizer: ModelTokenizer
    session: ModelSession

    @classmethod
    def open(
        cls,
        name: str,
        folder: Path,
        *,
        kind: Kind | None,
        device: Literal["cpu", "cuda", "auto"],
        require_device: Literal["", "cpu", "cuda"],
        threads: int,
        device_settings: DeviceSettings = DEFAULT_SETTINGS,
    ) -> "OpenModel":
        """Loads a model folder, which must be of that kind unless it is None; blocks.

        Raises ModelFolderError and DeviceUnavailable, which say what is wrong.
        """
        card = load_card(folder)
        if kind is not None and card.kind != kind:
            raise ModelFolderError(f"{folder} holds a model of kind {card.kind}; this backend needs {kind}")
        tokenizer = ModelTokenizer.load(folder, card)
        wanted = require_device if device == "auto" and require_device else device
        session = ModelSession.open(folder, card, device=wanted, intra_op_threads=threads, settings=device_settings)
        if require_device and session.device.partition(":")[0] != require_device:
            raise DeviceUnavailable(
                require_device, available=(session.device,), message=f"{name} runs on {session.device}"
            )
        return cls(name=name, card=card, tokenizer=tokenizer, session=session)

    def describe(self, *, method: Method, backend: str) -> ModelDescription:
        """What callers may know of it."""
        return ModelDescription(
            name=self.name,
            fingerprint=self.card.fingerprint_in(self.session.precision),
            method=method,
            max_tokens=self.card.max_tokens,
            device=self.session.device_text,
            precision=self.session.precision,
            backend=backend,
        )
