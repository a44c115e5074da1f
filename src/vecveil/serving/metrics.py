"""Counts and times for Prometheus. Labels come from the configuration and from our own code, never from a client."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from vecveil.errors import MissingDependencyError
from vecveil.version import __version__

__all__ = ["SHARED_FOLDER", "Metrics", "forget_process"]

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that has the client library keep figures in files of this folder, for all processes together."""

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MOST_NOTED = 1000


class Metrics:
    """The figures of one server, in a registry of its own; of all its processes, where `SHARED_FOLDER` is set.

    Raises:
        MissingDependencyError: prometheus-client is not installed.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingDependencyError("Serving", "prometheus-client", "serve") from error
        self._prometheus = prometheus
        self._registry = registry = prometheus.CollectorRegistry()
        self.requests = prometheus.Counter(
            "vecveil_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self.seconds = prometheus.Histogram(
            "vecveil_request_seconds",
            "Time to answer.",
            ["route"],
            registry=registry,
            buckets=_SECONDS,
        )
        self.running = prometheus.Gauge(
            "vecveil_requests_in_progress",
            "Requests that are being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.errors = prometheus.Counter(
            "vecveil_errors", "Errors answered, by their code.", ["code"], registry=registry
        )
        self.vectors = prometheus.Counter(
            "vecveil_vectors_released",
            "Vectors sent to clients.",
            ["policy", "side"],
            registry=registry,
        )
        self.upstream = prometheus.Histogram(
            "vecveil_upstream_seconds",
            "Time that the upstream took.",
            registry=registry,
            buckets=_SECONDS,
        )
        self.protection = prometheus.Histogram(
            "vecveil_protection_seconds",
            "Time that protection took.",
            registry=registry,
            buckets=_SECONDS,
        )
        prometheus.Gauge(
            "vecveil_build_info",
            "What is running.",
            ["version"],
            registry=registry,
            multiprocess_mode="max",
        ).labels(__version__).set(1)
        self._noted: deque[tuple[Callable[[float], None], float]] = deque()

    def note(self, count: Callable[[float], None], amount: float) -> None:
        """Have ``count(amount)`` called by the next `settle`: nobody's answer waits for it. Any thread may."""
        self._noted.append((count, amount))
        if len(self._noted) > _MOST_NOTED:  # nobody settles, as where no `Guard` is in front
            self.settle()

    def settle(self) -> None:
        """Count what was noted. Any thread may."""
        with suppress(IndexError):  # nothing is left, perhaps because another thread took it
            while True:
                count, amount = self._noted.popleft()
                count(amount)

    @property
    def content_type(self) -> str:
        """Of `text`."""
        kind: str = self._prometheus.CONTENT_TYPE_LATEST
        return kind

    def text(self) -> bytes:
        """Return the figures in Prometheus' format."""
        self.settle()
        registry = self._registry
        if (folder := os.environ.get(SHARED_FOLDER)) is not None:
            from prometheus_client import multiprocess

            registry = self._prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        text: bytes = self._prometheus.generate_latest(registry)
        return text


def forget_process(pid: int, folder: str) -> None:
    """Drop what an ended process was about to do; what it has counted stays."""
    from prometheus_client import multiprocess

    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
