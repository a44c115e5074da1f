"""One of several processes that answer on one port: what runs in it. See `vecveil.serving.workers`."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import TextIO

from vecveil.serving.logs import configure_logging, event
from vecveil.serving.server import serve_on
from vecveil.serving.settings import ServeSettings

__all__ = ["work"]


def work(settings: ServeSettings, listening: socket.socket, words: Connection) -> None:
    """Serve until a signal says to stop, or the process that started this one is gone.

    Args:
        listening: bound; it listens once this process can answer.
        words: told ``(url, policies)`` then, or the exception that keeps it from that.
    """
    signal.signal(
        signal.SIGTERM, _interrupt
    )  # uvicorn takes it over, and gives it back when it is done
    threading.Thread(target=_end_with_parent, name="vecveil-parent", daemon=True).start()
    configure_logging(access=settings.access_log)
    warnings.showwarning = _log_warning
    try:
        if hasattr(
            signal, "pthread_sigmask"
        ):  # Ctrl-C was held back until here, where it ends in silence
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with listening:
            serve_on(
                listening, settings, on_listening=lambda url, policies: words.send((url, policies))
            )
    except KeyboardInterrupt:
        pass
    except Exception as error:
        with suppress(OSError):
            words.send(_portable(error))
        raise SystemExit(1) from None  # without a traceback, which may hold data


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log our own warnings; those of other libraries may hold data."""
    if category.__module__.startswith("vecveil"):
        event("warning", level=logging.WARNING, message=str(message))


def _portable(error: Exception) -> Exception:
    """Return ``error`` if another process can read it, else one that names its type."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(type(error).__name__)
    return error
