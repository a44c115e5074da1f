"""The page's one job: a preview on a thread of its own, which can be watched and stopped."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from vecveil.errors import VecveilError
from vecveil.serving.errors import ApiError, invalid
from vecveil.serving.logs import event

__all__ = ["Job", "PageJobs", "Report"]

Report = Callable[[float, str], None]
Work = Callable[[Report], dict[str, Any]]
State = Literal["running", "done", "failed", "cancelled"]


class _StoppedError(Exception):
    """Ends a job's work from within its report of progress."""


@dataclass(eq=False, repr=False)
class Job:
    """A preview that runs or has ended."""

    id: str
    state: State = "running"
    share: float = 0.0
    what: str = "waiting"
    result: dict[str, Any] | None = None
    error: str | None = None
    code: str | None = None
    asked: float = field(default_factory=time.monotonic)
    stop: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what the page polls."""
        return {
            "id": self.id,
            "state": self.state,
            "share": self.share,
            "what": self.what,
            "error": self.error,
            "code": self.code,
            "result": self.result,
        }


class PageJobs:
    """Runs one job at a time; keeps nothing but the last result, until it is fetched or too old.

    Args:
        abandoned: seconds without a poll after which a job is stopped; browsers let a hidden page poll once a minute.
        kept: seconds that a result waits to be fetched.
    """

    def __init__(self, *, abandoned: float = 150.0, kept: float = 300.0) -> None:
        self._abandoned, self._kept = abandoned, kept
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Work) -> Job:
        """Start ``work`` and return its job.

        Raises:
            ApiError: 429, another job is running.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise ApiError(
                    429,
                    "Another preview is running on this server, which does one at a time. Try again in a few seconds.",
                    kind="rate_limit_error",
                    code="page_busy",
                    retry_after=5,
                )
            job = Job(secrets.token_urlsafe(16))
            self._job = job
            self._thread = threading.Thread(
                target=self._run, args=(job, work), name="vecveil-page", daemon=True
            )
            self._thread.start()
        return job

    def poll(self, id: str) -> dict[str, Any]:
        """Return the state of a job; a job that has ended is forgotten once its end has been told.

        Raises:
            ApiError: 404, there is none of that id (any more).
        """
        with self._lock:
            job = self._find(id)
            job.asked = time.monotonic()
            if job.state != "running":
                self._job = None
            return job.describe()

    def cancel(self, id: str) -> None:
        """Stop a job at its next step and forget what it has found; raises as `poll`."""
        with self._lock:
            job = self._find(id)
            job.stop = True
            if job.state != "running":
                self._job = None

    def close(self) -> None:
        """Stop what is running."""
        with self._lock:
            if self._job is not None:
                self._job.stop = True
            self._job = None

    def _find(self, id: str) -> Job:
        job = self._job
        if job is None or job.id != id:
            raise invalid("There is no such job (any more).", code="no_such_job", status=404)
        return job

    def _run(self, job: Job, work: Work) -> None:
        def report(share: float, what: str) -> None:
            if job.stop or time.monotonic() - job.asked > self._abandoned:
                raise _StoppedError
            job.share, job.what = share, what

        try:
            result = work(report)
            report(1.0, "done")  # stopped in the last step: then it has no result
            job.result, job.state = result, "done"
        except _StoppedError:
            job.state = "cancelled"
        except ApiError as error:
            job.error, job.code, job.state = error.text, error.code, "failed"
        except VecveilError as error:
            job.error, job.state = str(error), "failed"
        except Exception as error:  # its words may hold a text
            job.error, job.state = "Something unexpected failed.", "failed"
            event("preview failed", level=logging.ERROR, exception=type(error).__name__)
        timer = threading.Timer(self._kept, self._forget, (job,))
        timer.daemon = True
        timer.start()

    def _forget(self, job: Job) -> None:
        with self._lock:
            if self._job is job:
                self._job = None
