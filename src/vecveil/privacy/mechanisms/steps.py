"""Preprocessing before the noise, which defines the metric, and postprocessing after it, which costs no privacy.

Normalising and clipping bound the distance between any two inputs, which turns metric privacy into local privacy.
Anything computed from a release alone keeps its guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vecveil.errors import InvalidInputError, wrong_shape
from vecveil.privacy.randomness.elementary import row_dots
from vecveil.types import Embeddings, Matrix, Vector
from vecveil.validation import check_count, check_numbers, check_positive

OPEN_RANGE = 1e300
"""Placeholder for the range of int8 until the fit has measured released vectors."""

StepKind = Literal["normalise", "truncate", "project", "float16", "int8", "binary"]
STEP_KINDS = ("normalise", "truncate", "project", "float16", "int8", "binary")


@dataclass(frozen=True)
class Before:
    """Preprocessing of vectors before the noise.

    Attributes:
        kind: ``none``, ``normalise`` (to norm 1) or ``clip`` (longer rows are scaled to norm ``radius``).
        radius: largest norm after ``clip``.
    """

    kind: Literal["none", "normalise", "clip"] = "none"
    radius: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("none", "normalise", "clip"):
            raise InvalidInputError(
                f"Unknown `before`: {repr(self.kind)[:40]}. Use 'none', 'normalise' or 'clip:RADIUS'.", param="before"
            )
        if self.kind == "clip":
            check_positive(self.radius, owner="fit", param="before")
        elif self.radius is not None:
            raise InvalidInputError(f"Only 'clip' takes a radius in `before`, not {self.kind!r}.", param="before")

    @classmethod
    def of(cls, value: Before | str) -> Before:
        """Return ``value``, or parse its text form: ``none``, ``normalise``, ``clip:1.5``."""
        if isinstance(value, Before):
            return value
        kind, _, radius = value.partition(":") if isinstance(value, str) else ("?", "", "")
        try:
            return cls(kind, float(radius) if radius else None)  # type: ignore[arg-type]
        except ValueError as error:
            # InvalidInputError is a ValueError: only the error of float() needs its own message.
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"Unknown `before`: {repr(value)[:40]}. Use 'none', 'normalise' or 'clip:RADIUS'.", param="before"
            ) from None

    @property
    def largest_norm(self) -> float | None:
        """Return the largest norm after this step, or None for no bound."""
        return {"none": None, "normalise": 1.0, "clip": self.radius}[self.kind]

    def apply(self, X: Embeddings, *, owner: str) -> Embeddings:
        """Return the rows of ``X`` (N, n) after this step; ``normalise`` rejects a row of zeros."""
        if self.kind == "none":
            return X
        unit, norms = unit_rows(X)
        if self.kind == "normalise":
            if (norms == 0).any():
                raise InvalidInputError(
                    f"{owner}: `X` contains a row of zeros, which cannot be normalised before the noise. Leave such "
                    "rows out.",
                    param="X",
                )
            return np.ascontiguousarray(unit.astype(X.dtype))
        assert self.radius is not None
        clipped = unit * np.minimum(norms, self.radius)[:, None]
        # Rows inside the ball keep every bit: unit · norm would round them.
        inside = (norms <= self.radius)[:, None]
        return np.ascontiguousarray(np.where(inside, X, clipped).astype(X.dtype))


NOTHING_BEFORE = Before()


def unit_rows(X: Embeddings) -> tuple[Embeddings, Vector]:
    """Return the rows of ``X`` at norm 1 in float64, equal on every machine, and their norms; zero rows stay zero."""
    rows = X.astype(np.float64)
    # Divide by the largest value first, so that no square overflows or vanishes.
    largest = np.abs(rows).max(axis=1)
    safe = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    rows /= safe[:, None]
    lengths = np.sqrt(row_dots(rows, rows))
    rows /= np.where(lengths > 0, lengths, 1.0)[:, None]
    # A norm may exceed float64 although every value is finite.
    with np.errstate(over="ignore"):
        return rows, lengths * safe


@dataclass(frozen=True, eq=False)
class Step:
    """One step after the noise. Values keep the dtype of the input, even at lower precision.

    Attributes:
        kind: ``normalise``; ``truncate`` to the first ``value`` coordinates; ``project`` by ``matrix``; ``float16``
            (rounded to half precision); ``int8`` (integers from −127 to 127, with ``value`` mapped to 127); ``binary``
            (−1 or 1).
        value: of truncate and int8.
        matrix: (m, d) of project.
    """

    kind: StepKind
    value: float | None = None
    matrix: Matrix | None = None

    def __post_init__(self) -> None:
        owner, param = "fit", "postprocess"
        if self.kind not in STEP_KINDS:
            raise InvalidInputError(
                f"Unknown step of `postprocess`: {repr(self.kind)[:40]}. Use none, wiener, {', '.join(STEP_KINDS)}.",
                param=param,
            )
        if self.kind == "truncate":
            number = check_positive(self.value, owner=owner, param="truncate")
            whole = int(number) if number == int(number) else number
            object.__setattr__(self, "value", check_count(whole, owner=owner, param="truncate"))
        elif self.kind == "int8":
            check_positive(self.value, owner=owner, param="int8")
        elif self.value is not None:
            raise InvalidInputError(f"The step {self.kind!r} of `postprocess` takes no value.", param=param)
        if (self.kind == "project") != (self.matrix is not None):
            raise InvalidInputError(
                "The step 'project' of `postprocess` needs a matrix, and no other step takes one.", param=param
            )
        if self.matrix is not None:
            values = check_numbers(self.matrix, owner=owner, param=param)
            if values.ndim != 2 or 0 in values.shape:
                raise wrong_shape(owner, param, "(m, d)", values.shape)
            object.__setattr__(self, "matrix", np.ascontiguousarray(values))

    @property
    def label(self) -> str:
        return f"truncate to {self.value}" if self.kind == "truncate" else self.kind

    def output_dimension(self, dimension: int) -> int:
        if self.kind == "truncate":
            assert self.value is not None
            return min(int(self.value), dimension)
        return dimension if self.matrix is None else int(self.matrix.shape[0])

    def apply(self, Y: Embeddings) -> Embeddings:
        """Return the rows of ``Y`` (N, d) after this step, in the same dtype."""
        if self.kind == "normalise":
            return np.asarray(unit_rows(Y)[0].astype(Y.dtype))
        if self.kind == "truncate":
            return Y[:, : self.output_dimension(Y.shape[1])]
        if self.kind == "project":
            assert self.matrix is not None
            return np.asarray((Y.astype(np.float64) @ self.matrix.T).astype(Y.dtype))
        if self.kind == "float16":
            # Clip first: beyond ±65504 half precision gives infinity.
            limit = float(np.finfo(np.float16).max)
            return np.asarray(np.clip(Y, -limit, limit).astype(np.float16).astype(Y.dtype))
        if self.kind == "int8":
            assert self.value is not None
            # Symmetric, without −128, so that negating a vector negates its code.
            return np.asarray(np.clip(np.rint(Y * (127 / self.value)), -127, 127).astype(Y.dtype))
        return np.asarray(np.where(Y >= 0, 1, -1).astype(Y.dtype))

    def linear_part(self, dimension: int) -> Matrix | None:
        """Return the matrix of a linear step, which maps the noise covariance; None for other steps."""
        if self.kind == "truncate":
            return np.eye(self.output_dimension(dimension), dimension)
        return self.matrix

    def to_record(self) -> dict[str, Any]:
        return {"kind": self.kind, "value": self.value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], matrix: Matrix | None) -> Step:
        return cls(record["kind"], record["value"], matrix)
