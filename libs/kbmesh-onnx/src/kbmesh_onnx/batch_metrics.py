"""What a batcher's work looks like to Prometheus. Labels are models and lanes, which are few and known at start."""

from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from kbmesh_onnx.batch_observer import BatchReport, DropReason
from kbmesh_onnx.lane_queue import Lane

SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FILL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class BatchSeries:
    """The series of a service, `kbmesh_<service>_...`. Made once in a process. `items` names what is in a batch."""

    def __init__(self, service: str, *, items: str) -> None:
        name = f"kbmesh_{service}"
        lane = ["model", "lane"]
        self.queue_tokens = Gauge(f"{name}_queue_tokens", "Tokens that wait for the model.", lane)
        self.running_tokens = Gauge(f"{name}_running_tokens", "Tokens that the model works on.", ["model"])
        self.tokens = Counter(f"{name}_tokens_total", "Tokens that the model read.", lane)
        self.padding_tokens = Counter(
            f"{name}_padding_tokens_total",
            "Tokens of padding that the model computed beside them. Padding share = padding / (padding + tokens).",
            lane,
        )
        self.items = Histogram(
            f"{name}_batch_{items}", f"{items.capitalize()} of one run of the model.", lane, buckets=SIZE_BUCKETS
        )
        self.fill = Histogram(
            f"{name}_batch_fill_ratio",
            "Tokens of one run, padding included, over the tokens that a run may have.",
            lane,
            buckets=FILL_BUCKETS,
        )
        self.seconds = Histogram(
            f"{name}_batch_seconds", "Seconds of one run of the model.", lane, buckets=SECONDS_BUCKETS
        )
        self.dropped = Counter(
            f"{name}_dropped_{items}_total",
            f"{items.capitalize()} that left the queue before the model took them: the caller left, the deadline "
            "passed, the server closed, or the device was lost.",
            [*lane, "reason"],
        )


class BatchMetrics:
    """The series of one model, told by its batcher; all of them exist from the start, at zero."""

    def __init__(self, series: BatchSeries, model: str, *, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._queue = {lane: series.queue_tokens.labels(model, lane) for lane in Lane}
        self._running = series.running_tokens.labels(model)
        self._tokens = {lane: series.tokens.labels(model, lane) for lane in Lane}
        self._padding = {lane: series.padding_tokens.labels(model, lane) for lane in Lane}
        self._items = {lane: series.items.labels(model, lane) for lane in Lane}
        self._fill = {lane: series.fill.labels(model, lane) for lane in Lane}
        self._seconds = {lane: series.seconds.labels(model, lane) for lane in Lane}
        self._dropped = {
            (lane, reason): series.dropped.labels(model, lane, reason)
            for lane in Lane
            for reason in get_args(DropReason)
        }

    def queued(self, lane: Lane, tokens: int) -> None:
        self._queue[lane].set(tokens)

    def running(self, tokens: int) -> None:
        self._running.set(tokens)

    def ran(self, report: BatchReport) -> None:
        self._tokens[report.lane].inc(report.tokens)
        self._padding[report.lane].inc(report.padded_tokens - report.tokens)
        self._items[report.lane].observe(report.items)
        self._fill[report.lane].observe(report.padded_tokens / self._batch_tokens)
        self._seconds[report.lane].observe(report.seconds)

    def dropped(self, lane: Lane, reason: DropReason, items: int) -> None:
        self._dropped[lane, reason].inc(items)
