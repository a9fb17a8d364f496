"""Counts what a server does, for Prometheus: requests, live recordings, seconds of audio, times, memory of models.

Each server has its own figures. Without the package prometheus-client nothing is counted, and /metrics says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import Unavailable
from workbench.serving.sessions import SessionPool

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds
NO_MODEL = "none"  # the label of a request that names no model of this server


@dataclass
class LiveRecording:
    """A live recording, with the values that are counted."""

    route: str
    model: str = ""  # of the registry, once it is known
    status: int = 200  # that a request would get


class Figures:
    """The figures of one server."""

    def __init__(self, pool: SessionPool):
        self._pool = pool
        try:
            import prometheus_client as client
        except ImportError:
            self._registry: Any = None
            return
        self._registry = client.CollectorRegistry()
        of_requests = ("route", "model", "status")
        self._requests = client.Counter("workbench_requests", "Requests", of_requests, registry=self._registry)
        self._audio = client.Counter(
            "workbench_audio_seconds",
            "Seconds of audio in requests and in segments of live recordings",
            ("route", "model"),
            registry=self._registry,
        )
        self._latency = client.Histogram(
            "workbench_request_seconds",
            "Seconds from a request to the end of its answer",
            ("route", "model"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._running = client.Gauge(
            "workbench_running", "Requests that are being answered", ("route",), registry=self._registry
        )
        self._live_open = client.Gauge(
            "workbench_live_open", "Live recordings that are open", ("route",), registry=self._registry
        )
        self._live = client.Counter(
            "workbench_live_recordings", "Live recordings that have ended", of_requests, registry=self._registry
        )
        self._segments = client.Counter(
            "workbench_live_segments",
            "Segments of speech in live recordings",
            ("route", "model", "outcome"),
            registry=self._registry,
        )
        self._registry.register(self)

    def collect(self) -> Iterable[Any]:
        """Yields the values that are measured at the time of the request."""
        from prometheus_client.core import GaugeMetricFamily

        labels = ("model", "runtime", "quantization")
        memory = GaugeMetricFamily("workbench_model_memory_bytes", "Resident memory of a loaded model", labels=labels)
        busy = GaugeMetricFamily("workbench_model_busy", "1 while a loaded model works", labels=labels)
        for each in self._pool.residents():
            name = (each.model, each.runtime, each.quantization or "")
            memory.add_metric(name, each.memory_bytes or 0)
            busy.add_metric(name, float(each.busy))
        yield from (memory, busy)

    @contextlib.contextmanager
    def running(self, route: str) -> Iterator[None]:
        """Counts a request as running inside the block."""
        if self._registry is None:
            yield
            return
        with self._running.labels(route).track_inprogress():
            yield

    def answered(self, route: str, model: str, status: int, seconds: float, audio_seconds: float = 0.0) -> None:
        """Counts an answer."""
        if self._registry is None:
            return
        name = model or NO_MODEL
        self._requests.labels(route, name, str(status)).inc()
        self._latency.labels(route, name).observe(seconds)
        if audio_seconds:
            self._audio.labels(route, name).inc(audio_seconds)

    @contextlib.contextmanager
    def live(self, route: str) -> Iterator[LiveRecording]:
        """Counts a live recording as open inside the block, and as ended after it."""
        recording = LiveRecording(route)
        if self._registry is None:
            yield recording
            return
        with self._live_open.labels(route).track_inprogress():
            try:
                yield recording
            finally:
                self._live.labels(route, recording.model or NO_MODEL, str(recording.status)).inc()

    def segment(self, recording: LiveRecording, seconds: float, outcome: str) -> None:
        """Counts a segment of a live recording.

        Args:
            seconds: of audio.
            outcome: `completed` or `failed`.
        """
        if self._registry is None:
            return
        name = recording.model or NO_MODEL
        self._segments.labels(recording.route, name, outcome).inc()
        self._audio.labels(recording.route, name).inc(seconds)

    def page(self) -> tuple[bytes, str]:
        """Returns (the figures in Prometheus' text format, its media type)."""
        if self._registry is None:
            raise Unavailable("figures need the prometheus-client package: pip install prometheus-client")
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return generate_latest(self._registry), CONTENT_TYPE_LATEST
