"""An encoder in this process, on one thread of its own: requests that wait are encoded together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecveil.encoders.protocol import checked_vectors
from vecveil.errors import IncompatibleError
from vecveil.serving.errors import UpstreamError
from vecveil.serving.upstream import Encoded
from vecveil.types import Embeddings

__all__ = ["LocalUpstream"]


@dataclass(eq=False, repr=False)
class _Waiting:
    texts: list[str]
    done: asyncio.Future[Embeddings]


class LocalUpstream:
    """Encodes on one thread, so that the server goes on answering meanwhile.

    Args:
        encoder: anything with ``encode``.
        name: for logs.
        max_texts: so many texts of several requests are encoded in one call. Larger gives more throughput under load
            and lets a small request wait longer for a large one.
    """

    takes_models = False

    def __init__(self, encoder: Any, *, name: str | None = None, max_texts: int = 128) -> None:
        self.encoder = encoder
        self.name = str(name or getattr(encoder, "name", None) or type(encoder).__name__)
        self._max_texts = max_texts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vecveil-encoder")
        self._waiting: deque[_Waiting] = deque()
        self._runner: asyncio.Task[None] | None = None

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str,
        dimension: int | None,
        headers: Mapping[str, str],
    ) -> Encoded:
        """Return the vectors of ``texts``; see `Upstream`."""
        one = _Waiting(list(texts), asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        vectors = await one.done  # cancelled with the request: then it is not encoded
        if dimension is not None and vectors.shape[1] != dimension:
            raise IncompatibleError.of(
                "LocalUpstream", "encoder", f"one of {dimension} dimensions", vectors.shape[1]
            )
        return Encoded(vectors)

    async def aclose(self) -> None:
        """Stop the thread; what waits is cancelled."""
        if self._runner is not None:
            self._runner.cancel()
        for one in self._waiting:
            one.done.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while batch := self._next_batch():
            try:
                parts = await self._encode([text for one in batch for text in one.texts])
            except UpstreamError as error:
                if len(batch) == 1:
                    _fail(batch[0], error)
                    continue
                for one in batch:  # one client's text must not fail another's request
                    try:
                        _finish(one, await self._encode(one.texts))
                    except UpstreamError as own:
                        _fail(one, own)
                continue
            start = 0
            for one in batch:
                _finish(one, parts[start : start + len(one.texts)])
                start += len(one.texts)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        rows = 0
        while self._waiting:
            if self._waiting[0].done.done():  # the client went away
                self._waiting.popleft()
                continue
            if batch and rows + len(self._waiting[0].texts) > self._max_texts:
                break
            batch.append(self._waiting.popleft())
            rows += len(batch[-1].texts)
        return batch

    async def _encode(self, texts: list[str]) -> Embeddings:
        loop = asyncio.get_running_loop()
        failed: UpstreamError
        try:
            return await loop.run_in_executor(self._thread, self._vectors, texts)
        except Exception:
            # Whatever the encoder says may hold a text: it goes no further.
            failed = UpstreamError(
                502, "The encoder failed; nothing was released.", code="upstream_failed"
            )
        raise failed

    def _vectors(self, texts: list[str]) -> Embeddings:
        X = checked_vectors(self.encoder.encode(texts), rows=len(texts), owner="LocalUpstream")
        return np.asarray(X)


def _finish(one: _Waiting, vectors: Embeddings) -> None:
    if not one.done.done():
        one.done.set_result(vectors)


def _fail(one: _Waiting, error: UpstreamError) -> None:
    if not one.done.done():
        one.done.set_exception(error)
