"""What the server logs of uvicorn: JSON lines that do not read like errors where there is none."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from vecveil.gateway.server.monitoring import configure_logging, event

NAMES = ("vecveil.gateway.server", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")


@pytest.fixture
def loggers() -> Iterator[None]:
    """Leave the loggers as they were."""
    known = [logging.getLogger(name) for name in NAMES]
    before = [(one.handlers, one.propagate, one.level) for one in known]
    yield
    for one, (handlers, propagate, level) in zip(known, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("loggers")
def test_uvicorns_start_does_not_read_like_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.info("Application startup complete.")
    uvicorn.error("It failed.")
    start, failed = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (start["event"], start["level"]) == ("uvicorn", "info")
    assert "error" not in json.dumps(start)
    assert (failed["event"], failed["level"]) == ("uvicorn", "error")


@pytest.mark.usefixtures("loggers")
@pytest.mark.parametrize("access", [True, False])
def test_the_line_of_each_request_can_be_left_out(capsys: pytest.CaptureFixture[str], access: bool) -> None:
    configure_logging(access=access)
    event("request", status=200)
    event("stopped")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == (["request", "stopped"] if access else ["stopped"])
