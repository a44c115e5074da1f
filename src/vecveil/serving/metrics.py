"""Counts and times for Prometheus. Labels come from the configuration and from our own code, never from a client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

from vecveil.errors import MissingDependencyError
from vecveil.version import __version__

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MOST_NOTED = 1000


class Metrics:
    """The figures of one server, in a registry of its own.

    Args:
        running: returns how many requests are being answered.

    Raises:
        MissingDependencyError: prometheus-client is not installed.
    """

    def __init__(self, running: Callable[[], int]) -> None:
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
        prometheus.Gauge(
            "vecveil_requests_in_progress", "Requests that are being answered.", registry=registry
        ).set_function(running)
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
        prometheus.Info("vecveil_build", "What is running.", registry=registry).info(
            {"version": __version__}
        )
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
        text: bytes = self._prometheus.generate_latest(self._registry)
        return text
