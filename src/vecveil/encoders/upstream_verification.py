"""Verify that an upstream serves the encoder a protector was fitted for, before it releases a vector."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from vecveil.encoders.protocol import PROBE_TOLERANCE, probe_cosines, probe_distance
from vecveil.errors import IncompatibleError

_MODELS = 64  # clients may name any number of models
_REFUSED_SECONDS = 30.0


def matches_probe(vectors: Any, probe: Sequence[float], *, owner: str) -> bool:
    """Return whether ``vectors`` of `PROBE_SENTENCES` (12, n) come from the probe's encoder."""
    cosines = probe_cosines(lambda _: vectors, owner=owner)
    return probe_distance(probe, cosines) <= PROBE_TOLERANCE


class UpstreamVerification:
    """Remember which models of an upstream are the protector's encoder, and verify each model once.

    A rejected model stays rejected for 30 seconds without a further request to the upstream. A verified one
    is verified again after ``seconds`` or ``uses`` of `ensure`, for an upstream that may be replaced.
    """

    def __init__(self, *, seconds: float = math.inf, uses: float = math.inf) -> None:
        self._seconds, self._uses = seconds, uses
        self._verified: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # until when, uses left
        self._refused: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Task[None]] = {}

    @property
    def verified(self) -> bool:
        """True if a model was verified and not invalidated since."""
        return bool(self._verified)

    def invalidate(self) -> None:
        """Discard earlier results so that the next request verifies the upstream again."""
        self._verified.clear()

    def close(self) -> None:
        """Cancel pending verification requests."""
        for task in self._pending.values():
            task.cancel()

    def ensure(self, model: Hashable, verify: Callable[[], None]) -> None:
        """Call ``verify`` unless ``model`` is verified.

        Its `IncompatibleError` is raised again, without a call, for 30 seconds.
        """
        if not self._is_verified(model):
            with self._recorded(model):
                verify()

    async def ensure_async(
        self, model: Hashable, verify: Callable[[], Awaitable[None]], *, credential: str = ""
    ) -> None:
        """Await ``verify`` unless ``model`` is verified; concurrent callers share one verification.

        Callers with different ``credential`` do not share: one caller's wrong key is not another's. An
        `IncompatibleError` is raised again, without a call, for 30 seconds.
        """
        if self._is_verified(model):
            return
        # A task belongs to its event loop, and callers may use several loops in turn.
        pending = (asyncio.get_running_loop(), model, credential)
        task = self._pending.get(pending)
        if task is None:
            task = asyncio.create_task(self._verify(model, verify))
            self._pending[pending] = task
            task.add_done_callback(lambda done: self._finish(pending, done))
        await asyncio.shield(task)  # a cancelled caller must not cancel it for the others

    async def _verify(self, model: Hashable, verify: Callable[[], Awaitable[None]]) -> None:
        with self._recorded(model):
            await verify()

    def _finish(self, pending: Hashable, task: asyncio.Task[None]) -> None:
        # The result is in _verified or _refused by now; a failure of the network is retried next time.
        del self._pending[pending]
        if not task.cancelled():
            task.exception()  # mark as retrieved: every caller may have given up

    def _is_verified(self, model: Hashable) -> bool:
        now = time.monotonic()
        verified_until, uses = self._verified.get(model, (-math.inf, 0.0))
        if now < verified_until and uses > 0:
            self._verified[model] = (verified_until, uses - 1)
            return True
        until, sentence = self._refused.get(model, (0.0, ""))
        if now < until:
            raise IncompatibleError(sentence)
        return False

    @contextmanager
    def _recorded(self, model: Hashable) -> Iterator[None]:
        try:
            yield
        except IncompatibleError as error:
            _keep(self._refused, model, (time.monotonic() + _REFUSED_SECONDS, str(error)))
            raise
        _keep(self._verified, model, (time.monotonic() + self._seconds, self._uses))


def _keep(results: OrderedDict[Hashable, Any], model: Hashable, result: Any) -> None:
    """Store a result and drop the oldest: clients may name any number of models."""
    results[model] = result
    while len(results) > _MODELS:
        results.popitem(last=False)
