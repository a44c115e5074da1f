"""An encoder in the process: requests that wait go together, and fail alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from harness.serving import clean_vectors
from vecveil.errors import IncompatibleError
from vecveil.gateway.server.errors import UpstreamError
from vecveil.gateway.server.upstreams import LocalUpstream


class Recording:
    """Waits before its first batch until told to go on; fails on a poisoned text."""

    name = "recording"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Event()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.go.wait(60)
        self.batches.append(list(texts))
        if "poison" in texts:
            raise ValueError(f"cannot encode {texts}")
        return clean_vectors(texts)


async def embed(upstream: LocalUpstream, *texts: str, dimension: int | None = 16) -> np.ndarray:
    encoded = await upstream.embed(texts, model="m", dimension=dimension, headers={})
    return encoded.vectors


def test_requests_that_wait_are_encoded_together_and_sorted_out() -> None:
    encoder = Recording()

    async def main() -> list[np.ndarray]:
        upstream = LocalUpstream(encoder, max_texts=5)
        tasks = [asyncio.create_task(embed(upstream, f"a{i}", f"b{i}")) for i in range(4)]
        await asyncio.sleep(0.05)
        encoder.go.set()
        found = await asyncio.gather(*tasks)
        await upstream.aclose()
        return found

    for i, vectors in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(vectors, clean_vectors([f"a{i}", f"b{i}"]))
    assert [len(batch) for batch in encoder.batches] == [4, 4]


def test_a_request_that_was_cancelled_is_not_encoded() -> None:
    encoder = Recording()

    async def main() -> None:
        upstream = LocalUpstream(encoder)
        first = asyncio.create_task(embed(upstream, "first"))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(embed(upstream, "gone"))
        last = asyncio.create_task(embed(upstream, "last"))
        await asyncio.sleep(0.05)
        gone.cancel()
        encoder.go.set()
        np.testing.assert_array_equal(await first, clean_vectors(["first"]))
        np.testing.assert_array_equal(await last, clean_vectors(["last"]))
        await upstream.aclose()

    asyncio.run(main())
    assert encoder.batches == [["first"], ["last"]]


def test_one_clients_text_fails_its_own_request_alone() -> None:
    encoder = Recording()

    async def main() -> list[object]:
        upstream = LocalUpstream(encoder)
        blocker = asyncio.create_task(embed(upstream, "blocker"))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(embed(upstream, text)) for text in ("good", "poison", "fine")]
        await asyncio.sleep(0.05)
        encoder.go.set()
        await blocker
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await upstream.aclose()
        return list(found)

    with ThreadPoolExecutor(1) as thread:  # an exception that is handled around this test would be the errors' context
        good, bad, fine = thread.submit(lambda: asyncio.run(main())).result()
    assert isinstance(good, np.ndarray)
    assert isinstance(fine, np.ndarray)
    assert isinstance(bad, UpstreamError)
    said: BaseException | None = bad
    while said is not None:  # what the encoder said is nowhere in the chain
        assert isinstance(said, UpstreamError)
        assert "poison" not in str(said)
        said = said.__cause__ or said.__context__


def test_stopping_fails_the_requests_that_have_no_answer() -> None:
    """Of the batch that is being encoded and of the queue: none may wait for ever."""
    encoder = Recording()

    async def main() -> list[object]:
        upstream = LocalUpstream(encoder)
        tasks = [asyncio.create_task(embed(upstream, "running"))]
        await asyncio.sleep(0.05)
        tasks.append(asyncio.create_task(embed(upstream, "queued")))
        await asyncio.sleep(0)
        await upstream.aclose()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        encoder.go.set()
        return list(results)

    for error in asyncio.run(main()):
        assert isinstance(error, UpstreamError)
        assert (error.status, error.code) == (503, "stopping")


def test_another_dimension_is_another_encoder() -> None:
    encoder = Recording()
    encoder.go.set()

    async def main() -> None:
        upstream = LocalUpstream(encoder)
        with pytest.raises(IncompatibleError):
            await embed(upstream, "a", dimension=8)
        await upstream.aclose()

    asyncio.run(main())


def test_vectors_that_are_not_finite_are_refused() -> None:
    class Broken:
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            return np.full((len(texts), 16), np.nan, dtype=np.float32)

    async def main() -> None:
        upstream = LocalUpstream(Broken())
        with pytest.raises(UpstreamError):
            await embed(upstream, "a")
        await upstream.aclose()

    asyncio.run(main())
