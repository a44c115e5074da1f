"""What an attacker has: vectors, with what is known of their texts."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vecveil.attacks.further_evidence import FurtherVectors
from vecveil.errors import InvalidInputError
from vecveil.metrics.intervals import group_index
from vecveil.metrics.token_inference import check_labels
from vecveil.types import Embeddings
from vecveil.validation import check_embeddings, check_texts

__all__ = [
    "CandidateVectors",
    "Evidence",
    "LabelledVectors",
    "PairedVectors",
    "TextVectors",
]

Rows = npt.NDArray[np.intp]
Self = TypeVar("Self", bound="Evidence")


class Evidence(ABC):
    """Vectors of N texts, and which texts belong together; subclasses add what else is known of them.

    Attributes:
        X: (N, n) float32 or float64, finite.
        groups: (N,) group ids; None if every text stands alone.
    """

    X: Embeddings
    groups: npt.NDArray[Any] | None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dimension(self) -> int:
        """Dimension of the vectors."""
        return int(self.X.shape[1])

    @abstractmethod
    def take(self: Self, rows: Rows) -> Self:
        """Return the given rows."""

    def shape_record(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with beside the dimension of the vectors."""
        return {}

    def digest(self) -> str:
        """Return a hash of everything in it: a checkpoint of other texts or vectors is not used."""
        found = hashlib.sha256()
        _hash_fields(found, self)
        return found.hexdigest()[:32]

    def _set_common(self) -> None:
        """Check and freeze `X` and `groups`."""
        owner = type(self).__name__
        object.__setattr__(self, "X", check_embeddings(self.X, owner=owner, param="X", min_rows=1))
        if self.groups is not None:
            group_index(self.groups, len(self.X), owner=owner)
            object.__setattr__(self, "groups", np.asarray(self.groups))

    def _set_rows(self, name: str, *, dimension: int | None = None) -> None:
        """Check and freeze further vectors, one for each text, or None."""
        value = getattr(self, name)
        if value is None:
            return
        owner = type(self).__name__
        given = check_embeddings(value, owner=owner, param=name, dimension=dimension)
        _same_length(owner, name, len(given), len(self.X))
        object.__setattr__(self, name, given)


def _hash_fields(found: Any, record: Any) -> None:
    for each in fields(record):
        value = getattr(record, each.name)
        found.update(each.name.encode())
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype}{value.shape}".encode())
            found.update(
                value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
            )
        elif is_dataclass(value):
            _hash_fields(found, value)
        else:
            found.update(repr(value).encode("utf-8", "surrogatepass"))


def _same_length(owner: str, name: str, got: int, rows: int) -> None:
    if got != rows:
        wanted = f"one row for each of the {rows} vectors"
        raise InvalidInputError.of(owner, name, wanted, f"{got} rows")


def _part(value: Any, rows: Rows) -> Any:
    return None if value is None else value[rows]


@dataclass(frozen=True, eq=False, repr=False)
class LabelledVectors(Evidence):
    """Vectors, which tokens each text holds, and which texts belong together.

    Attributes:
        X: (N, n) float32 or float64, finite.
        L: (N, V) 0/1 token labels, kept as booleans. A probe has V = 1: does the text hold the concept?
        groups: (N,) group ids; None if every text stands alone.
        without: (N, n) vectors of the same texts with the concept removed, or None.
        further: Texts that the attacker has made or found, or None; `take` keeps all of them.
    """

    X: Embeddings
    L: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    without: Embeddings | None = None
    further: FurtherVectors | None = None

    def __post_init__(self) -> None:
        self._set_common()
        owner = type(self).__name__
        L = check_labels(self.L, owner=owner, param="L")
        _same_length(owner, "L", len(L), len(self.X))
        object.__setattr__(self, "L", L)
        self._set_rows("without", dimension=self.dimension)
        if self.further is not None:
            got = (self.further.X.shape[1], self.further.L.shape[1])
            if got != (self.dimension, L.shape[1]):
                wanted = f"of dimension {self.dimension} with {L.shape[1]} labels"
                raise InvalidInputError.of(owner, "further", wanted, f"{got[0]} and {got[1]}")

    def take(self, rows: Rows) -> LabelledVectors:
        """Return the given rows."""
        return LabelledVectors(
            self.X[rows],
            self.L[rows],
            _part(self.groups, rows),
            _part(self.without, rows),
            self.further,
        )

    def shape_record(self) -> dict[str, Any]:
        """Return the size of the vocabulary."""
        return {"tokens": int(self.L.shape[1])}


@dataclass(frozen=True, eq=False, repr=False)
class TextVectors(Evidence):
    """Vectors and their texts, for attacks that write the text anew.

    Attributes:
        X: (N, n) float32 or float64, finite.
        texts: N texts.
        groups: (N,) group ids; None if every text stands alone.
    """

    X: Embeddings
    texts: Sequence[str]
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._set_common()
        owner = type(self).__name__
        texts = tuple(check_texts(self.texts, owner=owner))
        _same_length(owner, "texts", len(texts), len(self.X))
        object.__setattr__(self, "texts", texts)

    def take(self, rows: Rows) -> TextVectors:
        """Return the given rows."""
        texts = [self.texts[i] for i in rows]
        return TextVectors(self.X[rows], texts, _part(self.groups, rows))


@dataclass(frozen=True, eq=False, repr=False)
class PairedVectors(Evidence):
    """Vectors and the clean vectors of the same texts: known plaintext.

    Attributes:
        X: (N, m) released vectors; clean ones, (N, n), where there is a release oracle.
        clean: (N, n) clean vectors of the same texts.
        groups: (N,) group ids; None if every text stands alone.
    """

    X: Embeddings
    clean: Embeddings
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._set_common()
        self._set_rows("clean")

    def take(self, rows: Rows) -> PairedVectors:
        """Return the given rows."""
        return PairedVectors(self.X[rows], self.clean[rows], _part(self.groups, rows))

    def shape_record(self) -> dict[str, Any]:
        """Return the dimension of the clean vectors."""
        return {} if self.clean is None else {"clean dimension": int(self.clean.shape[1])}


@dataclass(frozen=True, eq=False, repr=False)
class CandidateVectors(Evidence):
    """Released vectors, each of one of some candidate texts whose clean vectors the attacker has.

    Attributes:
        X: (M, m) released vectors.
        pool: (P, n) clean vectors of all candidate texts.
        truth: (M,) which candidate each vector really is, an index into its options.
        options: (M, C) the candidates of each vector, indices into ``pool``; None: the whole pool.
        groups: (M,) group ids; None if every text stands alone.
    """

    X: Embeddings
    pool: Embeddings
    truth: npt.NDArray[Any]
    options: npt.NDArray[Any] | None = None
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        self._set_common()
        owner, M = type(self).__name__, len(self.X)
        pool = check_embeddings(self.pool, owner=owner, param="pool", min_rows=2)
        object.__setattr__(self, "pool", pool)
        choices = len(pool)
        if self.options is not None:
            options = _indices(self.options, len(pool), owner, "options")
            if options.ndim != 2 or options.shape[1] < 2:
                wanted = "of shape (M, C) with C >= 2"
                raise InvalidInputError.of(owner, "options", wanted, f"{options.shape}")
            _same_length(owner, "options", len(options), M)
            object.__setattr__(self, "options", options)
            choices = options.shape[1]
        truth = _indices(self.truth, choices, owner, "truth")
        if truth.ndim != 1:
            raise InvalidInputError.of(owner, "truth", "of shape (M,)", f"{truth.shape}")
        _same_length(owner, "truth", len(truth), M)
        object.__setattr__(self, "truth", truth)

    def take(self, rows: Rows) -> CandidateVectors:
        """Return the given rows, with the whole pool."""
        options = _part(self.options, rows)
        return CandidateVectors(
            self.X[rows], self.pool, self.truth[rows], options, _part(self.groups, rows)
        )


def _indices(value: Any, size: int, owner: str, param: str) -> npt.NDArray[np.intp]:
    given = np.asarray(value)
    if given.dtype.kind not in "iu" or (given.size and not 0 <= given.min() <= given.max() < size):
        raise InvalidInputError.of(
            owner, param, f"integers from 0 to {size - 1}", f"dtype {given.dtype}, or one outside"
        )
    return given.astype(np.intp)
