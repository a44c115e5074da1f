"""The encoder protocol, the check of returned vectors, and a probe that distinguishes encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vecveil.errors import InvalidInputError
from vecveil.validation import all_finite

Advance = Callable[[int], None]
"""Callback that receives the number of texts just encoded."""


@runtime_checkable
class Encoder(Protocol):
    """An object that maps N texts to an (N, n) array, row i for text i."""

    def encode(self, texts: Sequence[str], /) -> Any:
        """Return the vectors of ``texts``, shape (N, n)."""
        ...


class Backend(Protocol):
    """One model behind a `TextEncoder`, without cache, chunks or progress bar."""

    @property
    def name(self) -> str:
        """Name in messages and records; never a path of this machine."""
        ...

    @property
    def precision(self) -> str:
        """``"fp32"``, ``"bf16"``, or ``"native"`` for an encoder of unknown precision."""
        ...

    @property
    def fingerprint(self) -> str | None:
        """Identifier of the vectors: equal fingerprints share a cache."""
        ...

    @property
    def model_fingerprint(self) -> str | None:
        """The fingerprint without the precision: the same weights and settings."""
        ...

    @property
    def dimension(self) -> int | None:
        """n, or None until something has been encoded."""
        ...

    def for_queries(self) -> Backend | None:
        """Return the backend of queries where the model encodes them in another way than documents, else None."""
        ...

    def read_lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many leading characters of each text the model reads; all of them if that is unknown."""
        ...

    def run(self, texts: list[str], advance: Advance) -> npt.NDArray[np.float32]:
        """Return the float32 vectors of ``texts``, calling ``advance`` as they come."""
        ...


def checked_vectors(value: Any, *, rows: int, owner: str, dimension: int | None = None) -> npt.NDArray[np.float32]:
    """Return an encoder's result for ``rows`` texts as a finite float32 array of shape (rows, n).

    Accepts NumPy arrays, torch tensors (any device, any float type) and lists of either or of numbers.
    """

    def refuse(kind: str, got: str) -> InvalidInputError:
        text = f"{owner} returned {got}. Make encode(texts) return one finite vector per text, all of one dimension."
        return InvalidInputError(text, code=f"E-INPUT-{kind}", param="encode")

    try:
        array = np.asarray(_to_numpy(value))
        if array.dtype.kind not in "fiu":
            raise TypeError
        # A float64 beyond float32's range becomes infinite and is rejected below.
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise refuse("TYPE", f"a {type(value).__name__} instead of an array of numbers") from None
    if array.ndim != 2 or array.shape[1] == 0:
        raise refuse("SHAPE", f"an array of shape {array.shape}")
    if array.shape[0] != rows:
        raise refuse("SHAPE", f"{array.shape[0]} rows for {rows} texts")
    if dimension is not None and array.shape[1] != dimension:
        raise refuse("SHAPE", f"dimension {array.shape[1]} after {dimension}")
    # all_finite tests a sum, which can overflow for finite values.
    if not all_finite(array) and not (finite := np.isfinite(array).all(axis=1)).all():
        raise refuse("FINITE", f"{int((~finite).sum())} rows with NaN or infinity")
    return array


def encode_in_batches(
    encode: Callable[[list[str]], npt.NDArray[np.float32]], texts: list[str], batch_size: int, advance: Advance
) -> npt.NDArray[np.float32]:
    """Return the vectors of ``texts``, encoded ``batch_size`` at a time."""
    parts = []
    for start in range(0, len(texts), batch_size):
        parts.append(encode(texts[start : start + batch_size]))
        advance(len(parts[-1]))
    return np.concatenate(parts)


def _to_numpy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_numpy(row) for row in value] if value and hasattr(value[0], "__len__") else value
    if hasattr(value, "detach"):  # a torch tensor; NumPy has no bfloat16
        return value.detach().cpu().float().numpy()
    return value


PROBE_SENTENCES = (
    "A dog sleeps in the sun.",
    "A cat is lying on the warm grass.",
    "The bank raised its interest rates again.",
    "He sat down on the bank of the river.",
    "Two men are playing chess in the park.",
    "The patient was given ten milligrams a day.",
    "Please send me the report before Friday.",
    "The train to Vienna leaves at noon.",
    "She does not like the new film at all.",
    "She likes the new film very much.",
    "Water boils at one hundred degrees.",
    "How do I reset my password?",
)

PROBE_TOLERANCE = 0.02
"""Largest root mean square difference of cosines of one model between precisions and servers."""


def probe_cosines(encode: Callable[[Sequence[str]], Any], *, owner: str) -> tuple[float, ...]:
    """Return the cosines of all pairs of the probe sentences, rounded to four digits.

    They are the same for one model on any machine, in any precision and under any rotation or scale of its output,
    and differ between models. They depend on no text of the user. ``encode`` is called once.
    """
    texts = list(PROBE_SENTENCES)
    X = checked_vectors(encode(texts), rows=len(texts), owner=owner).astype(np.float64)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    X = X / np.where(norms > 0, norms, 1.0)
    upper = np.triu_indices(len(X), k=1)
    return tuple(round(float(value), 4) for value in (X @ X.T)[upper])


def probe_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the root mean square difference of two probes; infinite if their lengths differ."""
    if len(first) != len(second):
        return float("inf")
    return float(np.sqrt(np.mean((np.asarray(first) - np.asarray(second)) ** 2)))
