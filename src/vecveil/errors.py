"""The exceptions of vecveil.

::

    VecveilError                     every error that vecveil raises on purpose
    ├── InvalidInputError            an argument is wrong (also a ValueError)
    ├── ConceptError                 a concept fits the texts badly: no match, too few, everything
    ├── DataFileError                an input file cannot be used: empty, damaged, a column is missing
    ├── ProtectorFileError           a saved protector is damaged, truncated or of an unknown format
    ├── IncompatibleError            two parts do not belong together: another encoder or dimension
    ├── CalibrationError             the asked utility or noise cannot be reached; says what can
    ├── ReleaseError                 protection failed, so nothing was released
    ├── KeyFileError                 a key of keyed noise cannot be used; the message never holds it
    ├── LedgerError                  a ledger of releases cannot be used: no ledger, damaged, locked
    │   └── LedgerCapError           an item would be released more often than the ledger allows
    ├── EncoderError                 an encoder behind a URL did not answer, or not with vectors
    ├── StoreError                   a vector database is not there, went away, or holds something else
    ├── TrainingError                a reward or gradient became NaN or infinite; the last checkpoint stays
    ├── MemoryLimitError             a limit leaves too little memory to begin (also a MemoryError)
    └── MissingDependencyError       an optional package is not installed (also an ImportError)

No message ever holds a text, a vector or a key: only names, shapes, counts and parameters.
"""

from __future__ import annotations

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
]


class VecveilError(Exception):
    """Base of all errors that vecveil raises on purpose."""


class InvalidInputError(VecveilError, ValueError):
    """An argument has the wrong type, shape or range."""


class ConceptError(VecveilError, ValueError):
    """A concept matches no text, too few texts, or leaves nothing of them."""


class DataFileError(VecveilError, ValueError):
    """An input file is empty, damaged, wrongly encoded, or lacks a column."""


class ProtectorFileError(VecveilError, ValueError):
    """A saved protector cannot be read: truncated, damaged or of an unknown format."""


class IncompatibleError(VecveilError, ValueError):
    """Two parts do not belong together, such as a protector and vectors of another encoder."""


class CalibrationError(VecveilError, ValueError):
    """The asked utility or noise cannot be reached; the message says what can."""


class ReleaseError(VecveilError, RuntimeError):
    """Protection failed after the input was accepted; nothing was released."""


class EncoderError(VecveilError, RuntimeError):
    """An encoder behind a URL did not answer, or not with one finite vector per text; the message holds none of it."""


class KeyFileError(VecveilError, ValueError):
    """A key of keyed noise is missing, malformed or readable by others; the message never holds it."""


class LedgerError(VecveilError, RuntimeError):
    """A ledger of releases cannot be used: not one, damaged, altered, locked; nothing was recorded."""


class LedgerCapError(LedgerError):
    """Items of a batch would be released more often than the cap allows; nothing was recorded.

    Attributes:
        items: how many items of the batch; never which.
    """

    def __init__(self, text: str, items: int) -> None:
        self.items = items
        super().__init__(text)

    def __reduce__(self) -> tuple[type[LedgerCapError], tuple[str, int]]:
        """Return what makes it anew: workers send it to their parent."""
        return type(self), (str(self), self.items)


class StoreError(VecveilError, RuntimeError):
    """A vector database is not there, went away, or holds something else; the message holds none of what is in it."""


class TrainingError(VecveilError, RuntimeError):
    """Training stopped because a reward or gradient became NaN or infinite; the last good checkpoint stays.

    Attributes:
        epoch: from 1; 0 before the first step.
        step: of the epoch, from 1.
    """

    def __init__(self, text: str, epoch: int, step: int) -> None:
        self.epoch, self.step = epoch, step
        super().__init__(text)

    def __reduce__(self) -> tuple[type[TrainingError], tuple[str, int, int]]:
        """Return what makes it anew: workers send it to their parent."""
        return type(self), (str(self), self.epoch, self.step)


class MemoryLimitError(VecveilError, MemoryError):
    """A limit on the memory of this process leaves too little for the work; nothing was begun."""


class MissingDependencyError(VecveilError, ImportError):
    """An optional package is not installed; the message has the pip command."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.feature = feature
        self.package = package
        self.extra = extra
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'vecveil[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingDependencyError], tuple[str, str, str]]:
        """Return what makes it anew: workers send it to their parent."""
        return type(self), (self.feature, self.package, self.extra)


def message(
    owner: str, param: str, constraint: str, got: object, why: str = "", fix: str = ""
) -> str:
    """Return the house's one error sentence: ``Owner: `param` must be constraint; got value. Why. Fix.``"""
    parts = [f"{owner}: `{param}` must be {constraint}; got {got}."]
    parts += [part for part in (why, fix) if part]
    return " ".join(parts)
