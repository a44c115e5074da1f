"""The exceptions of vecveil.

`VecveilError` is the base of every error that vecveil raises on purpose. Most are also a built-in error:
`InvalidInputError` is a `ValueError`, `MissingDependencyError` an `ImportError`.

No message ever holds a text, a vector or a key: only names, shapes, counts and parameters.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from typing import Any, Self

__all__ = [
    "CalibrationError",
    "ConceptError",
    "DataFileError",
    "EncoderError",
    "IncompatibleError",
    "InvalidInputError",
    "KeyFileError",
    "LedgerCapError",
    "LedgerError",
    "MemoryLimitError",
    "MissingDependencyError",
    "ProtectorFileError",
    "ReleaseError",
    "StoreError",
    "TrainingError",
    "VecveilError",
    "message",
    "not_finite",
    "out_of_range",
    "unknown_name",
    "wrong_shape",
    "wrong_type",
]


class VecveilError(Exception):
    """Base of all errors that vecveil raises on purpose.

    Attributes:
        code: stable identifier of the kind of error, such as ``E-INPUT-RANGE``. Programs and tests match the code
            and ``param``; the sentence may change in any release.
        param: name of the argument at fault; empty where no single argument is.
    """

    code: str = "E-VECVEIL"
    param: str = ""

    def __init__(self, text: str = "", *, code: str = "", param: str = "") -> None:
        super().__init__(text)
        if code:
            self.code = code
        if param:
            self.param = param

    def __reduce__(self) -> Any:
        """Return the parts that rebuild the error in another process without a call of ``__init__``."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @classmethod
    def of(
        cls, owner: str, param: str, constraint: str, got: object, why: str = "", fix: str = "", *, code: str = ""
    ) -> Self:
        """Return the error whose sentence `message` builds; ``code`` defaults to the code of the class."""
        return cls(message(owner, param, constraint, got, why, fix), code=code, param=param)


class InvalidInputError(VecveilError, ValueError):
    """An argument has the wrong type, shape or range."""

    code = "E-INPUT"


class ConceptError(VecveilError, ValueError):
    """A concept matches no text, too few texts, or leaves nothing of them."""

    code = "E-CONCEPT"


class DataFileError(VecveilError, ValueError):
    """An input file is empty, damaged, wrongly encoded, or lacks a column."""

    code = "E-DATA-FILE"


class ProtectorFileError(VecveilError, ValueError):
    """A saved protector cannot be read: truncated, damaged or of an unknown format."""

    code = "E-PROTECTOR-FILE"


class IncompatibleError(VecveilError, ValueError):
    """Two parts do not match, such as a protector and vectors of another encoder."""

    code = "E-INCOMPATIBLE"


class CalibrationError(VecveilError, ValueError):
    """The requested utility or noise cannot be reached; the message names the nearest that can."""

    code = "E-CALIBRATION"


class ReleaseError(VecveilError, RuntimeError):
    """Protection failed after the input was accepted; nothing was released."""

    code = "E-RELEASE"


class EncoderError(VecveilError, RuntimeError):
    """A remote encoder did not answer with one finite vector per text; the message holds neither texts nor vectors."""

    code = "E-ENCODER"


class KeyFileError(VecveilError, ValueError):
    """A key of keyed noise is missing, malformed or readable by others; the message never holds it."""

    code = "E-KEY-FILE"


class LedgerError(VecveilError, RuntimeError):
    """A ledger of releases is damaged, altered, locked, or not a ledger; nothing was recorded."""

    code = "E-LEDGER"


class LedgerCapError(LedgerError):
    """A batch would exceed the cap on releases of an item; nothing was recorded.

    Attributes:
        items: number of items of the batch above the cap; the error never names them.
    """

    code = "E-LEDGER-CAP"

    def __init__(self, text: str, items: int) -> None:
        self.items = items
        super().__init__(text)


class StoreError(VecveilError, RuntimeError):
    """A vector database is missing, disconnected, or has another content; the message holds none of its content."""

    code = "E-STORE"


class TrainingError(VecveilError, RuntimeError):
    """Training stopped because a reward or gradient became NaN or infinite; the last good checkpoint stays.

    Attributes:
        epoch: from 1; 0 before the first step.
        step: of the epoch, from 1.
    """

    code = "E-TRAINING"

    def __init__(self, text: str, epoch: int, step: int) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(text)


class MemoryLimitError(VecveilError, MemoryError):
    """A memory limit is too low for the work; the work did not begin."""

    code = "E-MEMORY-LIMIT"


class MissingDependencyError(VecveilError, ImportError):
    """An optional package is not installed; the message has the pip command."""

    code = "E-MISSING-DEPENDENCY"

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.feature, self.package, self.extra = feature, package, extra
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'vecveil[{extra}]'"
        )


# Constructors for the recurring kinds, so that a check is one line where the argument enters.


def wrong_type(owner: str, param: str, expected: str, got: object, *, fix: str = "") -> InvalidInputError:
    """Return the error for an argument of the wrong type; it names the type of ``got``, never its value."""
    return InvalidInputError.of(owner, param, expected, type(got).__name__, fix=fix, code="E-INPUT-TYPE")


def wrong_shape(owner: str, param: str, expected: str, got: object, *, fix: str = "") -> InvalidInputError:
    """Return the error for an array of the wrong shape."""
    return InvalidInputError.of(owner, param, f"of shape {expected}", f"shape {got}", fix=fix, code="E-INPUT-SHAPE")


def not_finite(owner: str, param: str, got: object, *, fix: str = "") -> InvalidInputError:
    """Return the error for NaN or infinity among the values."""
    return InvalidInputError.of(owner, param, "finite", got, fix=fix, code="E-INPUT-FINITE")


def out_of_range(
    owner: str, param: str, constraint: str, got: object, why: str = "", fix: str = ""
) -> InvalidInputError:
    """Return the error for a number outside of its range."""
    return InvalidInputError.of(owner, param, constraint, got, why, fix, code="E-INPUT-RANGE")


def unknown_name(
    owner: str, param: str, names: Iterable[str], got: object, *, fix: str = ""
) -> InvalidInputError:
    """Return the error for a name that is none of ``names``."""
    constraint = f"one of {', '.join(names)}"
    return InvalidInputError.of(owner, param, constraint, repr(got)[:60], fix=fix, code="E-INPUT-NAME")


def message(owner: str, param: str, constraint: str, got: object, why: str = "", fix: str = "") -> str:
    """Return the sentence of an error: ``Owner: `param` must be constraint; got value. Why. Fix.``"""
    sentence = f"{owner}: `{param}` must be {constraint}; got {got}."
    return " ".join(part for part in (sentence, why, fix) if part)
