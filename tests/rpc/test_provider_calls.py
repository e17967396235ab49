"""How calls to vendors are tried again, read and kept secret, without any vendor."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from kbmesh_rpc.errors import DeadlineExceeded, DependencyInvalidResponse, DependencyUnavailable, TextTooLong
from kbmesh_rpc.provider.address import check_base_url, host_of
from kbmesh_rpc.provider.api_key import ApiKeyError, KeySource
from kbmesh_rpc.provider.caller import Further, isolate
from kbmesh_rpc.provider.failure import Cause, ProviderFailure, failure_of, retry_after_seconds, to_error
from kbmesh_rpc.provider.patience import Patience, SilentCallObserver, persist
from kbmesh_rpc.provider.quiet import silence


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def failing(*failures: ProviderFailure) -> Callable[[float], object]:
    """Fails so often, then succeeds."""
    left = list(failures)

    async def attempt(seconds: float) -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return attempt


async def tried(
    clock: Clock, *failures: ProviderFailure, deadline: float | None = None, draw: float = 1.0, **patience: object
) -> str:
    return await persist(
        failing(*failures),
        provider="vendor",
        patience=Patience(**patience),
        deadline=deadline,
        observer=SilentCallObserver(),
        clock=clock,
        sleep=clock.sleep,
        draw=lambda: draw,
    )


OVERLOADED = ProviderFailure(Cause.OVERLOADED, status=503)


async def test_pauses_grow_and_are_drawn_from_their_upper_half() -> None:
    clock = Clock()
    assert await tried(clock, *[OVERLOADED] * 4, first_pause_seconds=1.0, longest_pause_seconds=4.0) == "answer"
    assert clock.pauses == [1.0, 2.0, 4.0, 4.0]
    clock = Clock()
    await tried(clock, OVERLOADED, draw=0.0, first_pause_seconds=1.0)
    assert clock.pauses == [0.5]


async def test_a_told_time_is_kept_and_a_little_later_at_most() -> None:
    clock = Clock()
    await tried(clock, ProviderFailure(Cause.RATE_LIMIT, retry_after_seconds=10.0))
    assert clock.pauses == [11.0]
    clock = Clock()
    await tried(clock, ProviderFailure(Cause.RATE_LIMIT, retry_after_seconds=10.0), draw=0.0)
    assert clock.pauses == [10.0]


async def test_who_has_a_deadline_waits_out_a_rate_limit_and_asks_ever_less_often() -> None:
    limited = ProviderFailure(Cause.RATE_LIMIT, status=429, retry_after_seconds=0.0)
    clock = Clock()
    assert await tried(clock, *[limited] * 9, deadline=1000.0, attempts=3) == "answer"
    assert clock.pauses == sorted(clock.pauses)
    assert clock.pauses[-1] > 10
    for deadline, failure in ((None, limited), (1000.0, ProviderFailure(Cause.RATE_LIMIT)), (1000.0, OVERLOADED)):
        clock = Clock()
        with pytest.raises(ProviderFailure):
            await tried(clock, *[failure] * 9, deadline=deadline, attempts=3)
        assert len(clock.pauses) == 2


@pytest.mark.parametrize("deadline", [105.0, 110.0])
async def test_nobody_waits_for_what_would_come_after_the_deadline(deadline: float) -> None:
    clock = Clock()
    with pytest.raises(ProviderFailure) as failure:
        await tried(clock, ProviderFailure(Cause.RATE_LIMIT, retry_after_seconds=10.0), deadline=deadline)
    assert failure.value.cause is Cause.RATE_LIMIT
    assert clock.pauses == []


async def test_a_very_long_wait_is_nobodys_even_without_a_deadline() -> None:
    clock = Clock()
    with pytest.raises(ProviderFailure):
        await tried(clock, ProviderFailure(Cause.RATE_LIMIT, retry_after_seconds=3600.0))
    assert clock.pauses == []


@pytest.mark.parametrize(
    "cause", [Cause.CREDENTIALS, Cause.NOT_FOUND, Cause.QUOTA, Cause.REFUSED, Cause.TOO_LONG, Cause.BAD_ANSWER]
)
async def test_what_will_not_pass_is_not_tried_again(cause: Cause) -> None:
    clock = Clock()
    with pytest.raises(ProviderFailure):
        await tried(clock, ProviderFailure(cause))
    assert clock.pauses == []


async def test_a_deadline_that_has_passed_begins_nothing() -> None:
    clock = Clock()
    with pytest.raises(DeadlineExceeded):
        await tried(clock, deadline=99.0)


async def test_a_call_that_the_deadline_cuts_off_is_told_as_such_and_one_that_hangs_as_slow() -> None:
    async def hang(seconds: float) -> None:
        await asyncio.sleep(60)

    async def persist_hanging(*, call_seconds: float, left: float) -> None:
        clock = asyncio.get_running_loop().time
        await persist(
            hang,
            provider="vendor",
            patience=Patience(attempts=1, call_seconds=call_seconds),
            deadline=clock() + left,
            observer=SilentCallObserver(),
            clock=clock,
        )

    with pytest.raises(DeadlineExceeded):
        await persist_hanging(call_seconds=30.0, left=0.02)
    with pytest.raises(ProviderFailure) as failure:
        await persist_hanging(call_seconds=0.02, left=30.0)
    assert failure.value.cause is Cause.TIMEOUT


def test_retry_after_is_seconds_or_a_date_or_milliseconds_or_nothing() -> None:
    assert retry_after_seconds({"retry-after": "1.5"}) == 1.5
    assert retry_after_seconds({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert retry_after_seconds({"retry-after": later}) == pytest.approx(100, abs=3)
    assert retry_after_seconds({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0
    for nonsense in ("", "soon", "-5", "nan", "inf", "Mon, 99 Foo"):
        assert retry_after_seconds({"retry-after": nonsense}) is None


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (400, '{"error": {"code": "context_length_exceeded"}}', Cause.TOO_LONG),
        (400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens", Cause.TOO_LONG),
        (413, "`inputs` must have less than 512 tokens. Given: 700", Cause.TOO_LONG),
        (400, '{"message": "too many tokens: text is 700 tokens"}', Cause.TOO_LONG),
        (400, "", Cause.REFUSED),
        (413, "payload too large", Cause.REFUSED),
        (422, "", Cause.REFUSED),
        (401, "", Cause.CREDENTIALS),
        (403, "too long", Cause.CREDENTIALS),
        (404, "", Cause.NOT_FOUND),
        (408, "", Cause.TIMEOUT),
        (429, "slow down", Cause.RATE_LIMIT),
        (429, "You exceeded your current quota, please check your plan", Cause.QUOTA),
        (402, "", Cause.QUOTA),
        (500, "", Cause.OVERLOADED),
        (529, "", Cause.OVERLOADED),
        (302, "", Cause.BAD_ANSWER),
        (204, "", Cause.BAD_ANSWER),
    ],
)
def test_statuses_are_told_apart(status: int, body: str, cause: Cause) -> None:
    assert failure_of(status, {}, body).cause is cause


def test_the_tokens_that_are_told_of_a_long_text_are_read() -> None:
    assert (
        failure_of(400, {}, "maximum context length is 8192 tokens, however you requested 9000 tokens").told_tokens
        == 9000
    )
    assert failure_of(413, {}, "must have less than 512 tokens. Given: 700").told_tokens == 700


def test_nothing_of_a_body_is_in_a_failure_or_an_error() -> None:
    secret = "sk-verysecret and the text of a document"
    for status in (400, 401, 403, 404, 413, 429, 500, 302):
        failure = failure_of(status, {}, f"Incorrect key {secret}. maximum context length {secret}")
        error = to_error(failure, provider="vendor", model="model", limit=10, tokens=20)
        for told in (str(failure), repr(failure), str(vars(failure)), str(error), str(error.metadata)):
            assert "secret" not in told
            assert "document" not in told


def test_failures_become_errors_with_a_reason_that_a_machine_can_read() -> None:
    def of(cause: Cause, **known: object) -> object:
        return to_error(ProviderFailure(cause, **known), provider="vendor", model="model", limit=10, tokens=20)

    unavailable = of(Cause.RATE_LIMIT, status=429, retry_after_seconds=3.0)
    assert isinstance(unavailable, DependencyUnavailable)
    assert unavailable.metadata == {"dependency": "vendor", "cause": "rate_limit"}
    assert unavailable.retry_after_seconds == 3.0
    assert isinstance(of(Cause.BAD_ANSWER), DependencyInvalidResponse)
    told, thought = of(Cause.TOO_LONG, told_tokens=15), of(Cause.TOO_LONG)
    assert isinstance(told, TextTooLong)
    assert isinstance(thought, TextTooLong)
    assert (told.metadata["tokens"], thought.metadata["tokens"]) == ("15", "20")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example/v1",
        "ftp://api.example",
        "api.example/v1",
        "https://",
        "https://name:sesame@api.example",
        "https://key@api.example",
        "https://api.example/v1?key=abc",
        "https://api.example/#a",
        "https://api.example:99999",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
    ],
)
def test_addresses_that_are_none_or_in_the_open_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(is not|holds)") as refusal:
        check_base_url(url, allow_plaintext=False)
    assert "sesame" not in str(refusal.value)
    assert "abc" not in str(refusal.value)


def test_addresses_that_are_encrypted_or_here_or_allowed_are_taken() -> None:
    for url in ("https://api.example/v1", "http://127.0.0.1:8000", "http://localhost/v1", "http://[::1]:80"):
        assert check_base_url(url + "/", allow_plaintext=False) == url
    assert check_base_url("http://proxy.svc:4000/v1", allow_plaintext=True) == "http://proxy.svc:4000/v1"
    assert host_of("https://API.Example:8443/v1") == "api.example:8443"


def test_a_key_comes_from_its_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" sk-file \n")
    both = KeySource(env="KEY", file=file)
    assert both.read({"KEY": "sk-env"}).get_secret_value() == "sk-file"
    assert KeySource(env="KEY").read({"KEY": "sk-env"}).get_secret_value() == "sk-env"
    assert KeySource().read({}).get_secret_value() == ""
    assert "sk-file" not in repr(both.read({}))


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"line\nline", b"tab\tkey", b"\xff\xfe", "schlüssel".encode(), b"k" * 20_000]
)
def test_what_is_no_key_is_refused_and_not_repeated(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(ApiKeyError) as refusal:
        KeySource(file=file).read({})
    assert str(file) in str(refusal.value)
    for part in ("two", "line", "tab", "kkk", "schl"):
        assert part not in str(refusal.value).replace(str(file), "")
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None
    with pytest.raises(ApiKeyError):
        KeySource(file=tmp_path / "absent").read({})
    with pytest.raises(ApiKeyError):
        KeySource(env="ABSENT").read({})


async def test_what_is_refused_is_found_within_a_bound() -> None:
    calls: list[int] = []

    async def ask(items: "list[int]") -> "list[int] | ProviderFailure":
        calls.append(len(items))
        return ProviderFailure(Cause.REFUSED) if any(item in {3, 77} for item in items) else [-item for item in items]

    outcomes = await isolate(list(range(100)), ask, Further())
    failed = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, ProviderFailure)]
    assert failed == [3, 77]
    assert all(outcome == -index for index, outcome in enumerate(outcomes) if index not in {3, 77})

    async def refuse(items: "list[int]") -> ProviderFailure:
        calls.append(len(items))
        return ProviderFailure(Cause.REFUSED)

    calls.clear()
    assert len(await isolate(list(range(2048)), refuse, Further(10))) == 2048
    assert len(calls) <= 11


def test_loggers_of_sdks_are_silent_with_all_that_are_below_them() -> None:
    logging.getLogger("sdk_of_a_vendor.deep.down").setLevel(logging.DEBUG)
    silence("sdk_of_a_vendor")
    for name in ("sdk_of_a_vendor", "sdk_of_a_vendor.deep.down", "sdk_of_a_vendor.new", "httpx", "httpcore.http11"):
        assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
