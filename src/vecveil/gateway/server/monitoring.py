"""Logs (JSON lines, for uvicorn and asyncio too) and Prometheus metrics of the server, without request data."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from vecveil.errors import InvalidInputError, MissingDependencyError
from vecveil.version import __version__

try:
    import prometheus_client
    from prometheus_client import Counter, Gauge, Histogram, multiprocess
except ImportError:
    raise MissingDependencyError("Serving", "prometheus-client", "serve") from None

_LOGGER = logging.getLogger("vecveil.gateway.server")
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event. Fields hold counts, configured names and our own sentences, never request data."""
    _LOGGER.log(level, name, extra={"fields": fields})


class _JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with only the type of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{second}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        if record.name == _LOGGER.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        else:
            # asyncio appends the repr of its objects in further lines, which may contain data.
            lines = record.getMessage().strip().splitlines() or [""]
            text = lines[0]
            # uvicorn logs a failed start as a formatted traceback: its last line starts with the type.
            if text.startswith("Traceback"):
                text = f"ended by {lines[-1].partition(':')[0]}"
            # uvicorn uses the logger uvicorn.error for messages of every level.
            line |= {"event": record.name.removesuffix(".error"), "message": text[:200]}
        # Messages and tracebacks of exceptions may contain texts or vectors.
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line)


def configure_logging(*, access: bool = True) -> None:
    """Send the logs of the server, uvicorn and asyncio to stderr as JSON lines; ``access`` adds one per request."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    if not access:
        handler.addFilter(lambda record: record.msg != "request")
    for name in (_LOGGER.name, *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False  # a root handler would format records with their tracebacks
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn").handlers = []  # uvicorn.error has a handler and does not propagate


MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: folder of the metric files that worker processes share."""
# Buckets: a short text through a local encoder takes milliseconds, a full batch through a slow API up to a minute.
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Metrics of one server, over all its processes if `MULTIPROCESS_FOLDER` names a writable folder."""

    def __init__(self) -> None:
        _check_folder(_folder())
        # Not the global registry: a second service in one process would register the names twice.
        self._registry = registry = prometheus_client.CollectorRegistry()
        timed: Any = {"registry": registry, "buckets": _SECONDS}
        self.requests = Counter("vecveil_requests", "Requests answered.", ["route", "status"], registry=registry)
        self.seconds = Histogram("vecveil_request_seconds", "Time to answer.", ["route"], **timed)
        self.running = Gauge(
            "vecveil_requests_in_progress",
            "Requests that are being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.errors = Counter("vecveil_errors", "Errors answered, by their code.", ["code"], registry=registry)
        self.vectors = Counter(
            "vecveil_vectors_released", "Vectors sent to clients.", ["policy", "side"], registry=registry
        )
        self.blobs = Counter("vecveil_blobs", "Sealed rows, by what was done.", ["action"], registry=registry)
        self.upstream = Histogram("vecveil_upstream_seconds", "Time that the upstream took.", **timed)
        self.protection = Histogram("vecveil_protection_seconds", "Time that protection took.", **timed)
        self.search = Histogram("vecveil_search_seconds", "Time of the stages of a search.", ["stage"], **timed)
        Gauge(
            "vecveil_build_info", "Version of the server.", ["version"], registry=registry, multiprocess_mode="max"
        ).labels(__version__).set(1)

    @property
    def content_type(self) -> str:
        return prometheus_client.CONTENT_TYPE_LATEST

    def text(self) -> bytes:
        registry = self._registry
        # A fresh registry reads the files of all processes, whichever process answers the scrape.
        if (folder := _folder()) is not None:
            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        return prometheus_client.generate_latest(registry)


def drop_ended_processes() -> None:
    """Drop the gauges of ended workers; their counters stay."""
    folder = _folder()
    for path in Path(folder).glob("gauge_live*_*.db") if folder is not None else ():
        pid = path.stem.rpartition("_")[2]
        try:
            os.kill(int(pid), 0)  # signal 0 tests for existence
        except ProcessLookupError:
            multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
        except (ValueError, PermissionError):
            continue


def _folder() -> str | None:
    # prometheus_client still reads its older lower-case name.
    return os.environ.get(MULTIPROCESS_FOLDER, os.environ.get(MULTIPROCESS_FOLDER.lower()))


def _check_folder(folder: str | None) -> None:
    # prometheus_client would raise a bare OSError when it opens its first file.
    if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)):
        raise InvalidInputError(
            f"`{MULTIPROCESS_FOLDER}` names no folder that can be written to; prometheus-client keeps metrics "
            "there. Make the folder, or unset the variable: --workers needs none.",
            param=MULTIPROCESS_FOLDER,
        )
