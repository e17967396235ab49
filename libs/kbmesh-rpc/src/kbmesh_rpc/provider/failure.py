"""Why a vendor did not answer, without anything of what was sent or answered."""

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum

from kbmesh_rpc.errors import (
    DependencyInvalidResponse,
    DependencyUnavailable,
    InferenceFailed,
    KbmeshError,
    TextTooLong,
)

READ_CHARACTERS = 4096
"""Of a refusal's body. What it says stands at its beginning."""


class Cause(StrEnum):
    """Why a call to a vendor failed. A closed set: it is a label of metrics, and `cause` of DEPENDENCY_UNAVAILABLE."""

    CREDENTIALS = "credentials"
    """The key is not taken (401, 403)."""
    NOT_FOUND = "not_found"
    """There is no such model, or no API at that address (404)."""
    QUOTA = "quota"
    """The account has used up what it may, or is not paid for (402, or 429 that says so)."""
    RATE_LIMIT = "rate_limit"
    """Too much at once (429)."""
    OVERLOADED = "overloaded"
    """The vendor failed or is overloaded (5xx)."""
    TIMEOUT = "timeout"
    """It did not answer in the time that one call may take."""
    UNREACHABLE = "unreachable"
    """There was no connection, or it broke."""
    BAD_ANSWER = "bad_answer"
    """It answered with something that cannot be used."""
    REFUSED = "refused"
    """It does not take what was sent (400, 413, 422)."""
    TOO_LONG = "too_long"
    """It refuses a text that is longer than the model reads."""


PASSING = frozenset({Cause.RATE_LIMIT, Cause.OVERLOADED, Cause.TIMEOUT, Cause.UNREACHABLE})
"""Causes that may be gone a moment later."""
DEFINITE = frozenset({Cause.CREDENTIALS, Cause.NOT_FOUND})
"""Causes that are there until somebody does something."""
OF_TEXTS = frozenset({Cause.REFUSED, Cause.TOO_LONG})
"""Causes that may lie with one of the texts."""

_WORDS: Mapping[Cause, str] = {
    Cause.CREDENTIALS: "does not take the key",
    Cause.NOT_FOUND: "has no such model, or is not at this address",
    Cause.QUOTA: "says that the account's quota is used up",
    Cause.RATE_LIMIT: "is asked too much at once",
    Cause.OVERLOADED: "failed",
    Cause.TIMEOUT: "did not answer in time",
    Cause.UNREACHABLE: "cannot be reached",
}
_NO_QUOTA = re.compile(
    r"insufficient_quota|billing_hard_limit|billing_not_active|exceeded your current quota", re.IGNORECASE
)
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum (?:context|input|sequence) length|(?:input|text|prompt)s? (?:is|are|was) too long"
    r"|too many tokens|longer than the maximum|must have less than \d+ tokens|exceeds? the (?:maximum|model'?s)"
    r"|string_above_max_length",
    re.IGNORECASE,
)
_TOLD_TOKENS = (
    re.compile(r"requested (\d{1,9}) tokens", re.IGNORECASE),
    re.compile(r"resulted in (\d{1,9}) tokens", re.IGNORECASE),
    re.compile(r"given:? (\d{1,9})", re.IGNORECASE),
    re.compile(r"(?:has|contains|got|have) (\d{1,9}) (?:input )?tokens", re.IGNORECASE),
)


class ProviderFailure(Exception):
    """A call that failed. Holds nothing of what was sent or answered beside numbers."""

    def __init__(
        self,
        cause: Cause,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        told_tokens: int | None = None,
        detail: str = "",
    ) -> None:
        """`told_tokens`: how many tokens a text has that is too long, where the vendor says so. `detail`: what cannot
        be used of an answer, in our own words."""
        super().__init__(f"{cause.value}{f' ({status})' if status else ''}{f': {detail}' if detail else ''}")
        self.cause = cause
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.told_tokens = told_tokens
        self.detail = detail


def failure_of(status: int, headers: Mapping[str, str], body: str) -> ProviderFailure:
    """What an HTTP answer that is no success means. `headers` have names in small letters."""
    said = body[:READ_CHARACTERS]
    retry_after = retry_after_seconds(headers)
    if status in {401, 403}:
        cause = Cause.CREDENTIALS
    elif status == 402 or (status == 429 and _NO_QUOTA.search(said)):
        cause = Cause.QUOTA
    elif status == 404:
        cause = Cause.NOT_FOUND
    elif status == 429:
        cause = Cause.RATE_LIMIT
    elif status == 408:
        cause = Cause.TIMEOUT
    elif status >= 500 or status in {409, 425}:
        cause = Cause.OVERLOADED
    elif status >= 400:
        if status in {400, 413, 422} and _TOO_LONG.search(said):
            return ProviderFailure(Cause.TOO_LONG, status=status, told_tokens=_told_tokens(said))
        cause = Cause.REFUSED
    else:
        return ProviderFailure(Cause.BAD_ANSWER, status=status, detail=f"the status {status}")
    return ProviderFailure(cause, status=status, retry_after_seconds=retry_after)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Retry-After (RFC 9110, section 10.2.3: seconds, or a date), or `retry-after-ms`, which some vendors send as well.
    None where there is none that can be read."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def to_error(failure: ProviderFailure, *, provider: str, model: str, limit: int, tokens: int) -> KbmeshError:
    """The failure as kbmesh tells it. `limit` and `tokens` are those of a text that is too long; `tokens` is what we
    think it has, where the vendor does not say."""
    status = f" ({failure.status})" if failure.status else ""
    if failure.cause is Cause.TOO_LONG:
        return TextTooLong(tokens=failure.told_tokens or tokens, limit=limit)
    if failure.cause is Cause.REFUSED:
        return InferenceFailed(model, f"{provider} refuses this text{status}")
    if failure.cause is Cause.BAD_ANSWER:
        return DependencyInvalidResponse(provider, f"{provider} answered with {failure.detail or 'nothing usable'}")
    error = DependencyUnavailable(provider, f"{provider} {_WORDS[failure.cause]}{status}", cause=failure.cause.value)
    error.retry_after_seconds = failure.retry_after_seconds
    return error


def _told_tokens(said: str) -> int | None:
    for pattern in _TOLD_TOKENS:
        if found := pattern.search(said):
            return int(found.group(1))
    return None


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
