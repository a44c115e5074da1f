"""What is done for a request while its upstream is at work: its noise is drawn, and the way of an answer gone once.

A server that waits loses its code and data from the processor's caches, and then needs several times as long. So where
nothing else waits, an answer that is nobody's is read, protected and thrown away, shortly before the real one is due.
Not where the encoder is in this process: it would have to stand still meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from vecveil.encoders.openai_compatible import parse_embeddings
from vecveil.randomness import WordStream
from vecveil.release_policy import ReleasePolicy
from vecveil.serving.released import release
from vecveil.serving.requests import Side

__all__ = ["Ahead"]

_SOONEST = 0.001
"""Seconds: the question is on its way to the upstream by then."""
_SHARE = 0.75
"""Of the time that the upstream usually takes."""
_LATEST = 0.25
_FORGETTING = 0.1


class Ahead:
    """What one policy can do ahead.

    Args:
        policy: whose noise is drawn.
    """

    def __init__(self, policy: ReleasePolicy) -> None:
        self._policy = policy
        self._usual = 0.0  # seconds that the upstream takes
        self._rehearses = policy.ledger is None and not policy.rewrites_texts
        n = policy.protector.dimension
        low, high = policy.protector.encoder_info.norms or (1.0, 1.0)
        row = np.full(n, (low + high) / 2 / np.sqrt(n), dtype="<f4")
        item = {
            "object": "embedding",
            "index": 0,
            "embedding": base64.b64encode(row.tobytes()).decode(),
        }
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self._answer = json.dumps({"object": "list", "data": [item], "usage": usage}).encode()

    @contextmanager
    def working(
        self, rows: int, side: Side, *, alone: Callable[[], bool]
    ) -> Iterator[list[WordStream]]:
        """Work ahead inside the block; the noise that was drawn by its end is in the list.

        Args:
            rows: how many vectors the upstream is asked for.
            side: of the request.
            alone: tells whether no other request is waiting.
        """
        drawn: list[WordStream] = []

        def work() -> None:
            if alone():
                self._rehearse()
            stream = self._policy.stream_ahead(rows, query=side == "query")
            if stream is not None:
                drawn.append(stream)

        loop = asyncio.get_running_loop()
        began = loop.time()
        wait = min(max(_SOONEST, _SHARE * self._usual), _LATEST)
        due = loop.call_later(wait, work)
        try:
            yield drawn
            took = loop.time() - began
            self._usual += (took - self._usual) * (_FORGETTING if self._usual else 1.0)
        finally:
            due.cancel()

    def _rehearse(self) -> None:
        if not self._rehearses:
            return
        try:
            dimension = self._policy.protector.dimension
            X = parse_embeddings(self._answer, rows=1, dimension=dimension, owner="rehearsal")
            stream = self._policy.stream_ahead(1)
            released = release(self._policy, X, side="document", texts=[""], stream=stream)
            released.to_json(model="", as_base64=True, tokens=0)
        except Exception:
            # A method that takes no such vector. With a real one the client is told what is wrong.
            self._rehearses = False
