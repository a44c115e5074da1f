"""Log JSON lines without request data, for the server, uvicorn and asyncio."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_LOGGER = logging.getLogger("vecveil.serving")
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event. Fields hold counts, configured names and our own sentences, never request data."""
    _LOGGER.log(level, name, extra={"fields": fields})


class _JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; of an exception it writes the type alone."""

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {"time": f"{second}.{int(record.msecs):03d}Z", "level": record.levelname.lower()}
        if record.name == _LOGGER.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        else:
            # asyncio appends the repr of its objects in further lines, which may hold data.
            lines = record.getMessage().strip().splitlines() or [""]
            text = lines[0]
            # uvicorn logs a failed start as a formatted traceback: its last line starts with the type.
            if text.startswith("Traceback"):
                text = f"ended by {lines[-1].partition(':')[0]}"
            # uvicorn uses the logger uvicorn.error for messages of every level.
            line |= {"event": record.name.removesuffix(".error"), "message": text[:200]}
        # Messages and tracebacks of exceptions may hold texts or vectors.
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line)


def configure_logging(*, access: bool = True) -> None:
    """Send the logs of the server, uvicorn and asyncio to stderr as JSON lines.

    Args:
        access: log a line for each request.
    """
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
