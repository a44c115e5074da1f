"""The encoder the package works with: checked, deduplicated, in chunks, cached."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vecveil.encoders.cache import EmbeddingCache
from vecveil.encoders.protocol import Advance, Backend, checked_vectors
from vecveil.errors import InvalidInputError
from vecveil.runtime import progress
from vecveil.types import Texts
from vecveil.validation import check_count, check_texts

__all__ = ["CHUNK_SIZE", "TextEncoder"]

Vectors = npt.NDArray[np.float32]

CHUNK_SIZE = 2048
"""Texts handled at a time: sorted by length together, written to the cache together."""
_OWNER = "TextEncoder"


@final
class TextEncoder:
    """Turns texts into float32 vectors; made by ``load_encoder`` or ``as_text_encoder``.

    Args:
        backend: the model.
        cache: vectors of texts seen before, or None. Finished chunks are kept, so that an
            interrupted run goes on from there.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        cache: EmbeddingCache | None = None,
        show_progress: bool | None = None,
    ) -> None:
        self._backend = backend
        self._cache = cache
        self._show_progress = show_progress
        self._dimension: int | None = backend.dimension

    @property
    def name(self) -> str:
        """The name for people and records; never a path of this machine."""
        return self._backend.name

    @property
    def precision(self) -> str:
        """``"fp32"``, ``"bf16"``, or ``"native"`` for an encoder of the user's own."""
        return self._backend.precision

    @property
    def fingerprint(self) -> str | None:
        """What identifies the vectors, precision included; None for an object without one."""
        return self._backend.fingerprint

    @property
    def model_fingerprint(self) -> str | None:
        """The fingerprint without the precision, where vectors agree to a cosine of .9999."""
        return self._backend.model_fingerprint

    @property
    def cache(self) -> EmbeddingCache | None:
        """The cache in use, or None."""
        return self._cache

    @property
    def dimension(self) -> int:
        """n. An object that does not say is asked to encode one word, once."""
        if self._dimension is None:
            self._run(["text"], lambda _: None)
        if self._dimension is None:  # pragma: no cover - _run sets it or raises
            raise InvalidInputError.of(_OWNER, "encode", "able to encode a word", "nothing")
        return self._dimension

    def precision_record(self) -> dict[str, Any]:
        """Return which precision runs, and why, as a JSON-ready dictionary."""
        choice = getattr(self._backend, "precision_choice", None)
        return {"precision": self.precision} if choice is None else dict(choice.to_record())

    def encode(self, texts: Texts, *, show_progress: bool | None = None) -> Vectors:
        """Return the vectors of ``texts``, float32 of shape (N, n); equal texts are encoded once.

        Raises:
            InvalidInputError: not a sequence of valid Unicode strings, or an encoder that returns
                something else than one finite vector per text.
        """
        texts = _checked(texts)
        first: dict[str, int] = {}
        for i, text in enumerate(texts):
            first.setdefault(text, i)
        distinct = list(first.values())
        out: Vectors | None = None
        with _Bar(len(texts), self._show(show_progress)) as bar:
            for start in range(0, len(distinct), CHUNK_SIZE):
                rows = distinct[start : start + CHUNK_SIZE]
                vectors = self._encode_distinct([texts[i] for i in rows], bar.advance)
                if out is None:
                    out = np.empty((len(texts), vectors.shape[1]), np.float32)
                out[rows] = vectors
            bar.advance(len(texts) - len(distinct))
        if out is None:
            return np.empty((0, self.dimension), np.float32)
        if len(distinct) < len(texts):
            out[:] = out[[first[text] for text in texts]]
        return out

    def encode_chunks(
        self,
        texts: Iterable[str],
        *,
        chunk_size: int = CHUNK_SIZE,
        total: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Vectors]:
        """Yield the vectors of ``texts`` in order, ``chunk_size`` rows at a time.

        Args:
            texts: any iterable, read as the chunks are taken.
            chunk_size: smaller takes less memory, larger wastes less time on padding.
            total: the number of texts, if known, for the progress bar.
        """
        chunk_size = check_count(chunk_size, owner=_OWNER, param="chunk_size")
        if isinstance(texts, str | bytes):
            check_texts(texts, owner=_OWNER)
        iterator = iter(texts)
        with _Bar(total, self._show(show_progress)) as bar:
            while chunk := _checked(itertools.islice(iterator, chunk_size)):
                position = {text: i for i, text in enumerate(dict.fromkeys(chunk))}
                vectors = self._encode_distinct(list(position), bar.advance)
                bar.advance(len(chunk) - len(position))
                yield (
                    vectors
                    if len(position) == len(chunk)
                    else vectors[[position[text] for text in chunk]]
                )

    def _show(self, show_progress: bool | None) -> bool | None:
        return self._show_progress if show_progress is None else show_progress

    def _encode_distinct(self, texts: list[str], advance: Advance) -> Vectors:
        if self._cache is None:
            return self._run(texts, advance)
        found, cached = self._cache.get(texts, self._dimension)
        advance(len(found))
        if len(found) == len(texts):
            self._dimension = cached.shape[1]
            return cached
        known = set(found)
        missing = [i for i in range(len(texts)) if i not in known]
        fresh = self._run([texts[i] for i in missing], advance)
        self._cache.put([texts[i] for i in missing], fresh)
        if not found:
            return fresh
        out = np.empty((len(texts), fresh.shape[1]), np.float32)
        if cached.shape[1] != fresh.shape[1]:  # an encoder that changed under the same fingerprint
            raise InvalidInputError.of(_OWNER, "fingerprint", "a new one when the encoder changes",
                                       f"dimension {fresh.shape[1]} where the cache has {cached.shape[1]}")  # fmt: skip
        out[found], out[missing] = cached, fresh
        return out

    def _run(self, texts: list[str], advance: Advance) -> Vectors:
        vectors = checked_vectors(
            self._backend.run(texts, advance),
            rows=len(texts),
            owner=_OWNER,
            dimension=self._dimension,
        )
        self._dimension = vectors.shape[1]
        return vectors

    def __repr__(self) -> str:
        precision, dimension = self.precision, self._dimension
        return f"TextEncoder(name={self.name!r}, precision={precision!r}, dimension={dimension})"


def _checked(texts: Iterable[str]) -> list[str]:
    checked = list(check_texts(texts, owner=_OWNER, min_rows=0))
    for i, text in enumerate(checked):
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise InvalidInputError.of(_OWNER, "texts", "valid Unicode",
                                           f"a lone surrogate at position {i}",
                                           "The file was probably read with the wrong encoding.",
                                           "Read it as UTF-8, or drop this text.") from None  # fmt: skip
    return checked


class _Bar:
    """A progress bar that moves by several texts at once."""

    def __init__(self, total: int | None, show: bool | None) -> None:
        steps = itertools.count() if total is None else range(total)
        self._steps = progress(steps, "Encoding", total=total, show=show, unit=" texts")

    def advance(self, count: int) -> None:
        deque(itertools.islice(self._steps, count), maxlen=0)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.advance(1)  # past the end: the bar closes itself as complete
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()
