"""The exceptions of vecveil, and the warning of a fit.

`VecveilError` is the base of every error that vecveil raises on purpose. Most are also a built-in error:
`InvalidInputError` is a `ValueError`, `MissingDependencyError` an `ImportError`.

No message ever contains a text, a vector or a key: only names, shapes, counts and parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "CalibrationError",
    "ConceptError",
    "DataFileError",
    "EncoderError",
    "FitWarning",
    "IncompatibleError",
    "InvalidInputError",
    "KeyFileError",
    "LedgerCapError",
    "LedgerError",
    "MemoryLimitError",
    "MissingDependencyError",
    "ProtectorFileError",
    "ReleaseError",
    "SealingError",
    "StoreError",
    "TrainingError",
    "VecveilError",
    "not_finite",
    "optional_import",
    "out_of_range",
    "renamed",
    "unknown_name",
    "wrong_shape",
    "wrong_type",
]


class VecveilError(Exception):
    """Base of all errors that vecveil raises on purpose.

    Attributes:
        code: stable identifier of the kind of error, such as ``E-INPUT-RANGE``. Programs should match the code and
            ``param``; the sentence may change in any release.
        param: name of the argument at fault; empty if no single argument is.
    """

    code: str = "E-VECVEIL"
    param: str = ""

    def __init_subclass__(cls, *, code: str = "") -> None:
        if code:
            cls.code = code

    def __init__(self, text: str = "", *, code: str = "", param: str = "") -> None:
        super().__init__(text)
        if code:
            self.code = code
        if param:
            self.param = param

    def __reduce__(self) -> Any:
        """Pickle the error without a call of ``__init__``, for other processes."""
        return _rebuilt, (type(self), *self.args), self.__dict__


def _rebuilt(kind: type[VecveilError], *arguments: Any) -> VecveilError:
    # MemoryError's own __new__ refuses subclasses of two bases.
    error = BaseException.__new__(kind, *arguments)
    super(VecveilError, error).__init__(*arguments)  # sets `msg` of an ImportError
    return error


class InvalidInputError(VecveilError, ValueError, code="E-INPUT"):
    """An argument has the wrong type, shape or range."""


class ConceptError(VecveilError, ValueError, code="E-CONCEPT"):
    """A concept matches no text, too few texts, or whole texts only."""


class DataFileError(VecveilError, ValueError, code="E-DATA-FILE"):
    """An input file is empty, damaged, wrongly encoded, or lacks a column."""


class ProtectorFileError(VecveilError, ValueError, code="E-PROTECTOR-FILE"):
    """A saved protector cannot be read: truncated, damaged or of an unknown format."""


class IncompatibleError(VecveilError, ValueError, code="E-INCOMPATIBLE"):
    """Two parts do not match, such as a protector and vectors of a different encoder."""


class CalibrationError(VecveilError, ValueError, code="E-CALIBRATION"):
    """The requested utility or noise is out of reach; the message names the nearest reachable value."""


class ReleaseError(VecveilError, RuntimeError, code="E-RELEASE"):
    """Protection failed after the input was accepted; nothing was released."""


class EncoderError(VecveilError, RuntimeError, code="E-ENCODER"):
    """A remote encoder did not answer with one finite vector per text; the message omits texts and vectors."""


class KeyFileError(VecveilError, ValueError, code="E-KEY-FILE"):
    """A key of keyed noise is missing, malformed or readable by others; the message never contains it."""


class LedgerError(VecveilError, RuntimeError, code="E-LEDGER"):
    """A ledger of releases is damaged, altered, locked, or not a ledger; nothing was recorded."""


class LedgerCapError(LedgerError, code="E-LEDGER-CAP"):
    """A batch would exceed the cap on releases of an item; nothing was recorded.

    Attributes:
        items: number of items above the cap.
    """

    def __init__(self, text: str, items: int) -> None:
        self.items = items
        super().__init__(text)


class SealingError(VecveilError, ValueError, code="E-SEAL"):
    """A sealed blob does not open; nothing was decrypted."""


class StoreError(VecveilError, RuntimeError, code="E-STORE"):
    """A vector database is missing, disconnected, or has unexpected content; the message omits the content."""


class TrainingError(VecveilError, RuntimeError, code="E-TRAINING"):
    """Training stopped because a reward or gradient became NaN or infinite; the last good checkpoint stays.

    Attributes:
        epoch: from 1; 0 before the first step.
        step: of the epoch, from 1.
    """

    def __init__(self, text: str, epoch: int, step: int) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(text)


class MemoryLimitError(VecveilError, MemoryError, code="E-MEMORY-LIMIT"):
    """A memory limit is too low for the work, which did not begin."""


class MissingDependencyError(VecveilError, ImportError, code="E-MISSING-DEPENDENCY"):
    """An optional package is not installed; the message has the pip command."""

    def __init__(self, feature: str, package: str, extra: str, install: str | None = None) -> None:
        self.feature, self.package, self.extra = feature, package, extra
        install = install or f"'vecveil[{extra}]'"
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. Install it with: pip install {install}"
        )


class FitWarning(UserWarning):
    """A fit protects less, or learned from less, than the caller may expect; its report has the same sentence."""


@contextmanager
def optional_import(feature: str, package: str, extra: str) -> Iterator[None]:
    """Raise `MissingDependencyError` for a failed import of ``package`` inside the block."""
    try:
        yield
    except ImportError:
        raise MissingDependencyError(feature, package, extra) from None


@contextmanager
def renamed(inner: str, outer: str) -> Iterator[None]:
    """Rename the argument ``inner`` in errors raised inside the block to the caller's argument ``outer``."""
    try:
        yield
    except VecveilError as error:
        if error.param == inner:
            error.param, error.args = outer, (str(error).replace(f"`{inner}`", f"`{outer}`"), *error.args[1:])
        raise


# Constructors for the recurring kinds, so that a check of an argument is one line.


def wrong_type(owner: str, param: str, expected: str, got: object, *, fix: str = "") -> InvalidInputError:
    """Return the error for an argument of the wrong type; it names the type of ``got``, never its value."""
    kind = "None" if got is None else type(got).__name__
    return _input_error(owner, param, f"`{param}` takes {expected}, not {kind}.", fix, "E-INPUT-TYPE")


def wrong_shape(owner: str, param: str, expected: str, got: object, *, fix: str = "") -> InvalidInputError:
    return _input_error(owner, param, f"`{param}` has shape {got}; it needs {expected}.", fix, "E-INPUT-SHAPE")


def not_finite(
    owner: str, param: str, got: str = "values that are not finite (NaN or infinity)", *, fix: str = ""
) -> InvalidInputError:
    return _input_error(owner, param, f"`{param}` has {got}.", fix, "E-INPUT-FINITE")


def out_of_range(owner: str, param: str, allowed: str, got: object, fix: str = "") -> InvalidInputError:
    """Return the error for a value outside of its range; ``allowed`` follows the verb "use"."""
    return _input_error(owner, param, f"`{param}` is {got}; use {allowed}.", fix, "E-INPUT-RANGE")


def unknown_name(owner: str, param: str, names: Iterable[str], got: object, *, fix: str = "") -> InvalidInputError:
    text = f"`{param}` {repr(got)[:60]} is unknown; use one of {', '.join(names)}."
    return _input_error(owner, param, text, fix, "E-INPUT-NAME")


def _input_error(owner: str, param: str, text: str, fix: str, code: str) -> InvalidInputError:
    return InvalidInputError(f"{owner}: {text} {fix}".rstrip(), code=code, param=param)
