"""Log lines in JSON: events of ours with fields of ours, and of other libraries nothing that could hold data."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache
from typing import Any

__all__ = ["configure_logging", "event"]

_LOGGER = logging.getLogger("vecveil.serving")
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event. Fields hold counts, names of the configuration and our own sentences; never what a client sent."""
    if _LOGGER.isEnabledFor(level):
        # Not `log`, which looks for its caller: no line names one.
        record = logging.LogRecord(_LOGGER.name, level, "", 0, name, None, None)
        record.fields = fields
        _LOGGER.handle(record)


class _JsonLines(logging.Formatter):
    """One JSON object a line. Exceptions give their type alone: their messages and tracebacks may hold data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
        }
        if record.name == _LOGGER.name:
            line |= {"event": record.msg, **getattr(record, "fields", {})}
        else:
            # The first line is the library's own sentence; asyncio appends objects below.
            said = record.getMessage().strip().splitlines()
            name = record.name.removesuffix(
                ".error"
            )  # uvicorn logs everything there, its start too
            first = said[0] if said else ""
            if first.startswith(
                "Traceback"
            ):  # frames and what was raised may hold data, its type does not
                first = f"ended by {said[-1].partition(':')[0]}"
            line |= {"event": name, "message": first[:200]}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line)


@lru_cache(maxsize=4)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


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
