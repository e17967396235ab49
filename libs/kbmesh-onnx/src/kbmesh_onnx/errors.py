"""What can go wrong with a model.

OnnxError
├── ModelFolderError      a model folder is absent, incomplete or of another version
├── ExportError           a model cannot be written, or what was written does not agree with the reference
│   └── PullError         a model's source cannot be found or reached
├── DeviceUnavailable     the device that was asked for did not activate
├── InferenceError        the model could not be run
│   └── DeviceLost        nor can it be again: its device is gone
└── TextError             one text cannot be encoded
    └── TextTooLong       one text is over the limit, and truncation was refused
"""


class OnnxError(Exception):
    """Parent of every error that this library raises on purpose."""


class ModelFolderError(OnnxError):
    """A model folder is absent, incomplete, damaged or of another schema version."""


class ExportError(OnnxError):
    """A model cannot be exported; the message names what stands in the way."""


class PullError(ExportError):
    """A model's source cannot be found or reached."""


class DeviceUnavailable(OnnxError):
    """The device that was asked for did not activate.

    `device` is what was asked for, `available` what the runtime offers.
    """

    def __init__(self, device: str, *, available: tuple[str, ...], message: str) -> None:
        super().__init__(f"device {device!r} is not available: {message}")
        self.device = device
        self.available = available


class InferenceError(OnnxError):
    """The model could not be run.

    `out_of_memory` tells that a smaller batch may succeed.
    """

    def __init__(self, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class DeviceLost(InferenceError):
    """The device failed in a way that no later run in this session gets over."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class TextError(OnnxError):
    """One text cannot be encoded. `index` is its place in the call; None means the query of a pair."""

    def __init__(self, index: int | None, message: str) -> None:
        super().__init__(f"text {index}: {message}" if index is not None else f"query: {message}")
        self.index = index
        self.message = message


class TextTooLong(TextError):
    """One text has `tokens` tokens, special ones included, over `limit`, and truncation was refused."""

    def __init__(self, index: int | None, *, tokens: int, limit: int) -> None:
        super().__init__(index, f"{tokens} tokens, of which the model may read {limit}")
        self.tokens = tokens
        self.limit = limit
