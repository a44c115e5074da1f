"""One of several processes that answer on one port: what runs in it. See `vecveil.serving.workers`."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from vecveil.errors import IncompatibleError
from vecveil.randomness import NoiseKeys
from vecveil.serving.logs import configure_logging, event
from vecveil.serving.metrics import share_figures
from vecveil.serving.server import serve_on
from vecveil.serving.settings import ServeSettings

if TYPE_CHECKING:
    from vecveil.serving.service import Service

__all__ = ["Listening", "identity_of", "work"]


@dataclass(frozen=True)
class Listening:
    """What a worker says once it answers: where, for how many policies, and which (`identity_of`)."""

    url: str
    policies: int
    identity: str


def work(
    settings: ServeSettings,
    listening: socket.socket,
    words: Connection,
    *,
    number: int,
    figures: str,
    identity: str | None,
) -> None:
    """Serve until a signal says to stop, or the process that started this one is gone.

    Args:
        listening: bound; it listens once this process can answer.
        words: told `Listening` then, or the exception that keeps it from that.
        number: of this worker.
        figures: folder of the figures of all.
        identity: that the policies must have; None takes any.
    """
    _interrupted_once()
    threading.Thread(
        target=_end_with_parent, args=(settings, figures), name="vecveil-parent", daemon=True
    ).start()
    configure_logging(access=settings.access_log)
    warnings.showwarning = _log_warning
    found = ""

    def opened(service: Service) -> None:
        nonlocal found
        found = identity_of(service)
        if identity not in (None, found):
            # Another protector or key on the same port: equal texts would no longer get equal vectors.
            raise IncompatibleError(
                "serve: a protector, key or upstream is no longer what the other workers have. Restart the server to "
                "take the new one, or put the old one back."
            )

    try:
        if hasattr(
            signal, "pthread_sigmask"
        ):  # Ctrl-C was held back until here, where it ends in silence
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with listening:
            share_figures(figures, number)
            serve_on(
                listening,
                settings,
                on_opened=opened,
                on_listening=lambda url, count: words.send(Listening(url, count, found)),
            )
    except KeyboardInterrupt:
        pass
    except Exception as error:
        with suppress(OSError):
            words.send(_portable(error))
        raise SystemExit(1) from None  # without a traceback, which may hold data


def identity_of(service: Service) -> str:
    """Return a digest of what decides the vectors that leave: protectors, their use, keys and upstreams; no secret."""
    policies = []
    for name, one in sorted(service.policies.items()):
        policy = one.policy
        key = policy.key.key() if isinstance(policy.key, NoiseKeys) else policy.key
        policies.append(
            [
                name, policy.protector.fingerprint, policy.protector.encoder_info.fingerprint,
                policy.query_protection, policy.query_noise, one.upstream.name,
                None if key is None else [key.key_id, key.check_value],
            ]
        )  # fmt: skip
    return hashlib.sha256(json.dumps(policies).encode()).hexdigest()


def _interrupted_once() -> None:
    """Let the first signal end what runs in silence; uvicorn takes signals over while it serves."""
    serving = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal serving
        if serving:  # a later one comes when all is done, where an exception would be shown
            serving = False
            raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGINT"):
        signal.signal(getattr(signal, name), interrupt)
    if hasattr(signal, "SIGHUP"):  # the parent decides, and lets requests end
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _end_with_parent(settings: ServeSettings, figures: str) -> None:
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    shutil.rmtree(figures, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(settings.limits.shutdown_seconds + 10)
    os._exit(1)


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


def _portable(error: Exception) -> Any:
    """Return ``error`` if another process can read it, else one that names its type."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(type(error).__name__)
    return error
