"""What calls to vendors look like to Prometheus. Labels are models and causes, which are few and known at start."""

from prometheus_client import Counter, Histogram

from kbmesh_rpc.provider.failure import Cause

STATUSES = ("2xx", "3xx", "4xx", "5xx", "none")
SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallSeries:
    """The series of a service, `kbmesh_<service>_provider_...`. Made once in a process."""

    def __init__(self, service: str) -> None:
        name = f"kbmesh_{service}_provider"
        self.calls = Counter(
            f"{name}_calls_total",
            "HTTP calls to the provider of a model, by class of status; none is no answer.",
            ["model", "http_status"],
        )
        self.failures = Counter(f"{name}_failures_total", "Calls that failed, by cause.", ["model", "cause"])
        self.retries = Counter(f"{name}_retries_total", "Calls that repeat one that failed.", ["model"])
        self.seconds = Histogram(f"{name}_call_seconds", "Seconds of one call.", ["model"], buckets=SECONDS_BUCKETS)


class CallMetrics:
    """The series of one model; all of them exist from the start, at zero."""

    def __init__(self, series: CallSeries, model: str) -> None:
        self._calls = {status: series.calls.labels(model, status) for status in STATUSES}
        self._failures = {cause: series.failures.labels(model, cause.value) for cause in Cause}
        self._retries = series.retries.labels(model)
        self._seconds = series.seconds.labels(model)

    def called(self, *, status: int | None, cause: Cause | None, seconds: float) -> None:
        self._calls[_status_class(status)].inc()
        self._seconds.observe(seconds)
        if cause is not None:
            self._failures[cause].inc()

    def retried(self) -> None:
        self._retries.inc()


def _status_class(status: int | None) -> str:
    name = f"{status // 100}xx" if status is not None else "none"
    return name if name in STATUSES else "none"
