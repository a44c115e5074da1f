"""A FAISS index whose vectors are protected.

    index = ProtectedIndex(faiss.IndexFlatIP(384), "health.vecveil")
    index.add(texts)
    distances, rows = index.search(["a question"], 10)

Texts or clean vectors go in; the index and its file hold protected vectors, and neither texts nor keys.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from vecveil.errors import (
    IncompatibleError,
    InvalidInputError,
    MissingDependencyError,
    StoreError,
)
from vecveil.integrations.items import Items, Vectors
from vecveil.integrations.opening import KeySource
from vecveil.io import atomic_path
from vecveil.protector.policy import STRONGER, QueryProtection
from vecveil.types import Embeddings, Texts

if TYPE_CHECKING:
    from vecveil.accounting import Ledger
    from vecveil.encoders import Encoder
    from vecveil.protector import Protector

__all__ = ["ProtectedIndex"]

_OWNER = "ProtectedIndex"


class ProtectedIndex:
    """Any ``faiss.Index`` of the dimension that the protector releases.

    Args:
        index: what holds the vectors; a number makes a flat index of inner products with that dimension. What an index
            was trained on, or holds already, was not protected by this object.
        protector: or the path of its file.
        query_protection: ``same``, ``stronger`` or ``map-only``; see `ReleasePolicy`.
        query_noise: times the documents' noise, for ``stronger``.
        key: keys, the path of a key file, or ``env:NAME``; never written anywhere.
        ledger: or the path of its file.
        encoder: of the texts; None takes the protector's own.
        normalise: scale what is stored and asked to length 1, after the protection, so that inner products are
            cosines. Say the same when the file is loaded again.

    Raises:
        IncompatibleError: the index has another dimension.
        MissingDependencyError: faiss is not installed.
    """

    def __init__(
        self,
        index: Any,
        protector: Protector | str | os.PathLike[str],
        *,
        query_protection: QueryProtection = "same",
        query_noise: float = STRONGER,
        key: KeySource = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        encoder: Encoder | None = None,
        normalise: bool = False,
    ) -> None:
        faiss = _faiss()
        self.items = Items(
            protector,
            query_protection=query_protection,
            query_noise=query_noise,
            key=key,
            ledger=ledger,
            encoder=encoder,
            owner=_OWNER,
        )
        if isinstance(index, int) and not isinstance(index, bool) and index > 0:
            index = faiss.IndexFlatIP(index)
        if not isinstance(index, faiss.Index):
            wanted = "a faiss.Index with vectors of floats, or a dimension"
            raise InvalidInputError.of(_OWNER, "index", wanted, type(index).__name__)
        if index.d != self.items.dimension:
            raise IncompatibleError.of(_OWNER, "index", f"of dimension {self.items.dimension}",
                                       f"dimension {index.d}", "The protector releases others.",
                                       "Make another index for it.")  # fmt: skip
        self.index, self.normalise = index, normalise

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], protector: Protector | str | os.PathLike[str], **policy: Any
    ) -> Self:  # fmt: skip
        """Return the index of a file that `save` wrote; ``policy`` is what the class takes.

        Raises:
            StoreError: no index can be read there.
        """
        faiss = _faiss()
        try:
            index = faiss.read_index(os.fspath(path))
        except RuntimeError:
            raise StoreError.of(
                _OWNER, "path", "an index file of FAISS", "another or none"
            ) from None
        return cls(index, protector, **policy)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return int(self.index.ntotal)

    def train(self, items: Texts | Embeddings) -> None:
        """Train the index on the protected vectors of ``items``: trained on clean ones it would hold their means."""
        self._index("could not be trained", "train", self._documents(items, None))

    def add(self, items: Texts | Embeddings) -> None:
        """Protect and add ``items``, texts or clean vectors (N, n); their ids are the numbers of the rows.

        Raises:
            InvalidInputError: NaN, or neither texts nor vectors.
            IncompatibleError: vectors of another dimension.
            StoreError: the index refused, such as one that is not trained.
        """
        self._ready()
        self._index("did not take the rows", "add", self._documents(items, None))

    def add_with_ids(self, items: Texts | Embeddings, ids: Any) -> None:
        """Protect and add ``items`` under ``ids``, which also name them to a key and a ledger.

        An empty index without ids of its own is put into an ``IndexIDMap2`` first.
        """
        faiss = _faiss()
        numbers = np.asarray(ids)
        if numbers.shape != (len(items),) or numbers.dtype.kind not in "iu":
            raise InvalidInputError.of(f"{_OWNER}.add_with_ids", "ids", "one whole number for each item",
                                       f"shape {numbers.shape}, dtype {numbers.dtype}")  # fmt: skip
        numbers = np.ascontiguousarray(numbers, dtype=np.int64)
        self._ready()
        has_ids = isinstance(self.index, faiss.IndexIDMap | faiss.IndexIDMap2 | faiss.IndexIVF)
        if not has_ids and self.index.ntotal == 0:
            self.index = faiss.IndexIDMap2(self.index)
        elif not has_ids:
            raise InvalidInputError.of(f"{_OWNER}.add_with_ids", "index", "an index with ids",
                                       type(self.index).__name__, "It holds rows without ids already.",
                                       "Put it into a faiss.IndexIDMap2 first.")  # fmt: skip
        vectors = self._documents(items, numbers)
        self._index("did not take the rows", "add_with_ids", vectors, numbers)

    def search(
        self, queries: str | Texts | Embeddings, k: int = 10
    ) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Return distances and ids of the ``k`` nearest rows of each query, as FAISS does: (N, k) and (N, k).

        Args:
            queries: texts, one text, or clean vectors (N, n); they are protected as the policy says.
        """
        Y = self._scaled(self.items.queries([queries] if isinstance(queries, str) else queries))
        distances, rows = self._index("could not be searched", "search", Y, int(k))
        return distances, rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to ``path``, whole or not at all."""
        faiss = _faiss()
        try:
            with atomic_path(path) as temporary:
                faiss.write_index(self.index, str(temporary))
        except (RuntimeError, OSError):
            raise StoreError.of(_OWNER, "path", "a file that can be written", "one that cannot",
                                "What was there before is there still.") from None  # fmt: skip

    def _documents(self, items: Texts | Embeddings, ids: Any) -> Vectors:
        vectors, _ = self.items.documents(items, None if ids is None else ids.tolist())
        return self._scaled(vectors)

    def _scaled(self, Y: Vectors) -> Vectors:
        if not self.normalise:
            return Y
        norms = np.linalg.norm(Y, axis=1, keepdims=True)
        return np.ascontiguousarray(Y / np.where(norms > 0, norms, 1), dtype=np.float32)

    def _ready(self) -> None:
        if not self.index.is_trained:
            raise StoreError.of(_OWNER, "index", "trained before rows are added", "one that is not",
                                fix="Call train(items) on this object.")  # fmt: skip

    def _index(self, what: str, call: str, *arguments: Any) -> Any:
        try:
            return getattr(self.index, call)(*arguments)
        except (RuntimeError, AssertionError) as error:
            raise StoreError.of(
                _OWNER, "index", "one that can do this", type(error).__name__, f"It {what}."
            ) from None


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingDependencyError("A FAISS index", "faiss-cpu", "faiss") from None
    return faiss
