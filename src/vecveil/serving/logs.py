"""Log JSON lines: our own events and fields, and of other libraries nothing that could hold data."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

__all__ = ["configure_logging", "event"]

_LOGGER = logging.getLogger("vecveil.serving")
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event. Fields hold counts, names of the configuration and our own sentences; never what a client sent."""
    _LOGGER.log(level, name, extra={"fields": fields})


class _JsonLines(logging.Formatter):
    """One JSON object a line. Exceptions give their type alone: messages and tracebacks may hold data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{second}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        if record.name == _LOGGER.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        else:
            # The first line is the library's own sentence; asyncio appends objects below.
            lines = record.getMessage().strip().splitlines() or [""]
            text = lines[0]
            if text.startswith("Traceback"):  # its frames and message may hold data, the type does not
                text = f"ended by {lines[-1].partition(':')[0]}"
            # uvicorn logs everything to uvicorn.error, which would read like an error.
            line |= {"event": record.name.removesuffix(".error"), "message": text[:200]}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line)


def configure_logging(*, access: bool = True) -> None:
    """Send the logs of the server, uvicorn and asyncio to stderr as JSON lines.

    Args:
        access: False leaves out the line of each request.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    if not access:
        handler.addFilter(lambda record: record.msg != "request")
    for name in (_LOGGER.name, *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn").handlers = []  # uvicorn.error has its own
