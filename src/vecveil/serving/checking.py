"""Whether an upstream is the encoder that a protector was fitted for: asked before anything is released."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import NoReturn

from vecveil.encoders.protocol import (
    PROBE_SENTENCES,
    PROBE_TOLERANCE,
    probe_cosines,
    probe_distance,
)
from vecveil.errors import IncompatibleError
from vecveil.protector import Protector
from vecveil.serving.errors import UpstreamError
from vecveil.serving.http_upstream import HttpUpstream
from vecveil.serving.local_upstream import LocalUpstream
from vecveil.serving.logs import event
from vecveil.serving.upstream import Encoded, Upstream

__all__ = ["EncoderCheck"]

_MODELS = 64
_REFUSED_SECONDS = 30.0


class EncoderCheck:
    """The check of one policy's upstream, done once for each model and again after the upstream was away.

    Args:
        policy: its name, for logs.
        protector: what the upstream's vectors must belong to.
        upstream: that is asked.
    """

    def __init__(self, policy: str, protector: Protector, upstream: Upstream) -> None:
        self._policy, self._protector, self._upstream = policy, protector, upstream
        self._passed: OrderedDict[str, None] = OrderedDict()
        self._refused: OrderedDict[str, float] = OrderedDict()
        self._running: dict[tuple[str, str | None], asyncio.Task[None]] = {}

    @property
    def passed(self) -> bool:
        """Whether any model has passed."""
        return bool(self._passed)

    def forget(self) -> None:
        """Check again before the next release: whatever comes back may be another encoder."""
        self._passed.clear()

    def close(self) -> None:
        """Ask no more."""
        for task in self._running.values():
            task.cancel()

    async def ensure(self, model: str, headers: Mapping[str, str]) -> None:
        """Return once ``model`` of the upstream has passed.

        Requests that wait for the same answer share one question, so that an upstream that is away keeps nobody
        waiting for longer than one of them.

        Raises:
            IncompatibleError: it is another encoder.
            UpstreamError, EncoderError: it could not be asked.
        """
        name = model if self._upstream.takes_models else ""
        if name in self._passed:
            return
        if time.monotonic() < self._refused.get(name, 0.0):
            self._refuse("another encoder, found a moment ago")
        asked = (name, headers.get("authorization"))  # one client's wrong key is not another's
        running = self._running.get(asked)
        if running is None:
            running = asyncio.create_task(self._ask(name, model, dict(headers)))
            self._running[asked] = running
            running.add_done_callback(lambda done: self._done(asked, done))
        await asyncio.shield(running)  # a client that goes away does not end it for the others

    def _done(self, asked: tuple[str, str | None], task: asyncio.Task[None]) -> None:
        del self._running[asked]
        if not task.cancelled():
            task.exception()  # seen, though everybody who asked may be gone

    async def _ask(self, name: str, model: str, headers: Mapping[str, str]) -> None:
        try:
            await self._check(model, headers)
        except IncompatibleError:
            self._refused[name] = time.monotonic() + _REFUSED_SECONDS
            _shorten(self._refused)
            event(
                "another encoder",
                level=logging.ERROR,
                policy=self._policy,
                upstream=self._upstream.name,
            )
            raise
        self._passed[name] = None
        _shorten(self._passed)

    async def _check(self, model: str, headers: Mapping[str, str]) -> None:
        protector, upstream = self._protector, self._upstream
        info = protector.encoder_info
        how = "dimension"
        if isinstance(upstream, LocalUpstream):
            await asyncio.to_thread(protector.check_encoder, upstream.encoder)
            if info.fingerprint and getattr(upstream.encoder, "fingerprint", None):
                how = "fingerprint"
        vectors = (await self._probe(model, headers)).vectors
        if vectors.shape[1] != protector.dimension:
            self._refuse(
                f"vectors of {vectors.shape[1]} dimensions instead of {protector.dimension}"
            )
        if how == "dimension" and info.probe:
            how = "probe"
            found = probe_cosines(lambda _: vectors, owner="upstream")
            if probe_distance(info.probe, found) > PROBE_TOLERANCE:
                self._refuse("vectors of another model")
        event("encoder checked", policy=self._policy, upstream=upstream.name, by=how)
        if how == "dimension":
            event(
                "encoder known by its dimension alone",
                level=logging.WARNING,
                policy=self._policy,
                message="The protector holds nothing else to compare. Another encoder of that dimension would get "
                "through, and its vectors would be protected badly.",
            )

    async def _probe(self, model: str, headers: Mapping[str, str]) -> Encoded:
        upstream = self._upstream
        texts = list(PROBE_SENTENCES)
        refused: UpstreamError
        try:
            return await upstream.embed(texts, model=model, dimension=None, headers=headers)
        except UpstreamError as error:
            refused = error
        plain = isinstance(upstream, HttpUpstream) and upstream.encoding_format == "base64"
        if not plain or refused.refused not in (400, 422):
            raise refused
        # Some servers know no base64.
        assert isinstance(upstream, HttpUpstream)
        upstream.encoding_format = "float"
        try:
            found = await upstream.embed(texts, model=model, dimension=None, headers=headers)
        except BaseException:
            upstream.encoding_format = "base64"
            raise
        event("upstream asked for lists of numbers", upstream=upstream.name)
        return found

    def _refuse(self, got: str) -> NoReturn:
        known = self._protector.encoder_info.name or "unnamed"
        raise IncompatibleError.of("serve", "upstream", f"the encoder of the policy {self._policy!r} ({known})",
                                   got, "Map and noise fit the vectors of that encoder only.",
                                   "Name its encoder as the upstream, or fit a new protector.")  # fmt: skip


def _shorten(kept: OrderedDict[str, None] | OrderedDict[str, float]) -> None:
    while len(kept) > _MODELS:
        kept.popitem(last=False)
