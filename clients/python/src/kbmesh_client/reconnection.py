"""When an ingestion whose connection broke off goes on over a new one."""

import logging
import random
import time

import grpc

from kbmesh_client.errors import Cancelled, KbmeshError, ServiceUnavailable

logger = logging.getLogger("kbmesh_client")

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
LOST_STATUS_TRIES = 3
RECONNECT_SECONDS = 60.0
"""For how long without a result the server may be away: a pod that moves to another node is back within it."""


class Reconnection:
    """Decides after each failure whether to wait and go on. A server that never answered is not waited for: whoever
    named a wrong address is told at once."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._answered_at: float | None = None
        self._failures = 0

    def answered(self) -> None:
        """A result has come."""
        self._answered_at = time.monotonic()
        self._failures = 0

    def wait_after(self, error: KbmeshError) -> float | None:
        """Seconds to wait before a new connection; None where the error is to be raised."""
        # A server that is stopped hard ends calls as cancelled, which nobody here did.
        if not isinstance(error, ServiceUnavailable | Cancelled) or self._seconds <= 0:
            return None
        now = time.monotonic()
        if self._answered_at is None:
            # The status that gRPC lost, which a second call will most likely tell.
            lost = error.code is grpc.StatusCode.INTERNAL and self._failures < LOST_STATUS_TRIES
            if error.reason != "SHUTTING_DOWN" and not lost:
                return None
            if not lost:
                self._answered_at = now
        elif now - self._answered_at >= self._seconds:
            return None
        self._failures += 1
        longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (self._failures - 1))
        # Many clients of one server come back at different moments.
        wait = longest * random.uniform(0.5, 1)
        logger.warning("the ingestion broke off (%s); a new connection in %.1f s", error.reason, wait)
        return wait
