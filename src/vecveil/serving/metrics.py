"""Counts and times for Prometheus. Labels come from the configuration and from our own code, never from a client."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.version import __version__

__all__ = ["Metrics", "forget_process", "share_figures"]

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MOST_NOTED = 1000
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_folder: str | None = None  # of figures that processes share


class Metrics:
    """The figures of one server, in a registry of its own; of all its processes, after `share_figures`.

    Raises:
        MissingDependencyError: prometheus-client is not installed.
        InvalidInputError: PROMETHEUS_MULTIPROC_DIR, by which prometheus-client keeps figures in files, is no folder.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client as prometheus
        except ImportError as error:
            raise MissingDependencyError("Serving", "prometheus-client", "serve") from error
        _check_folder(os.environ.get(_VARIABLE, os.environ.get(_VARIABLE.lower())))
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
        self._noted: deque[tuple[Any, float, tuple[str, ...]]] = deque()

    def note(self, metric: Any, amount: float, *labels: str) -> None:
        """Have ``amount`` counted or observed by the next `settle`: nobody's answer waits for it. Any thread may."""
        self._noted.append((metric, amount, labels))
        if len(self._noted) > _MOST_NOTED:  # nobody settles, as where no `Guard` is in front
            self.settle()

    def settle(self) -> None:
        """Count what was noted; figures that cannot be kept fail no request. Any thread may."""
        with suppress(IndexError):  # nothing is left, perhaps because another thread took it
            while True:
                metric, amount, labels = self._noted.popleft()
                with suppress(OSError):  # somebody removed the folder of shared figures
                    one = metric.labels(*labels) if labels else metric
                    (one.observe if hasattr(one, "observe") else one.inc)(amount)

    @property
    def content_type(self) -> str:
        """Of `text`."""
        kind: str = self._prometheus.CONTENT_TYPE_LATEST
        return kind

    def text(self) -> bytes:
        """Return the figures in Prometheus' format."""
        self.settle()
        registry = self._registry
        if _folder is not None:
            from prometheus_client import multiprocess

            Path(_folder).mkdir(mode=0o700, exist_ok=True)
            registry = self._prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, _folder)  # type: ignore[no-untyped-call]
        text: bytes = self._prometheus.generate_latest(registry)
        return text


def share_figures(folder: str, process: int) -> None:
    """Have the figures of this process kept in files of ``folder``, and those of all processes there shown together.

    Args:
        process: number among those that share the folder; a process that takes the place of another has its number
            and counts on from where that one was.
    """
    global _folder
    os.environ[_VARIABLE] = folder
    try:
        from prometheus_client import values
    except ImportError:  # `Metrics` says so
        return
    values.ValueClass = values.MultiProcessValue(process_identifier=lambda: process)  # type: ignore[no-untyped-call]
    _folder = folder


def forget_process(process: int, folder: str) -> None:
    """Drop what an ended process was about to do; what it has counted stays."""
    with suppress(OSError, ImportError):
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(process, folder)  # type: ignore[no-untyped-call]


def _check_folder(folder: str | None) -> None:
    if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        raise InvalidInputError.of("serve", _VARIABLE, "not set, or a folder that can be written to",
                                   "something else",
                                   "prometheus-client keeps figures there where the variable is set.",
                                   "Make the folder, or unset the variable: --workers needs none.")  # fmt: skip
