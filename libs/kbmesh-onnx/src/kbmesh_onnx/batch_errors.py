"""Why an item, or a whole submission, has no result.

BatchError
├── QueueFullError      refused on arrival; nothing was taken
├── ItemExpiredError    its deadline passed before the model took it
├── ItemFailedError     the model failed on it
├── ModelLostError      the model's device is gone, and with it whatever was on its way there
└── BatcherClosedError  the batcher was closed before the model took it
"""


class BatchError(Exception):
    """Why an item, or a whole submission, has no result."""


class QueueFullError(BatchError):
    """The queue has no room for the submission. Nothing of it was taken."""

    def __init__(self, *, queued_tokens: int, limit: int, retry_after_seconds: float) -> None:
        super().__init__(f"{queued_tokens} tokens wait, the limit is {limit}")
        self.queued_tokens = queued_tokens
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds


class ItemExpiredError(BatchError):
    """The item's deadline passed before the model took it."""


class ItemFailedError(BatchError):
    """The model failed on this very item; `__cause__` is its exception."""


class ModelLostError(BatchError):
    """The model cannot be run any more; `__cause__` tells why. Says nothing of the item."""


class BatcherClosedError(BatchError):
    """The batcher was closed before the model took the item."""
