"""Options of mask training as a specification holds them: numbers, whole where they are whole."""

from __future__ import annotations

from collections.abc import Mapping

from vecveil.errors import InvalidInputError
from vecveil.sensitivity.hard_concrete_options import MaskOptions

__all__ = ["mask_options", "whole_numbers"]


def whole_numbers(options: Mapping[str, float]) -> dict[str, float | int]:
    """Return options with 100.0 as 100: counts are counts."""
    return {key: int(value) if value == int(value) else value for key, value in options.items()}


def mask_options(options: Mapping[str, float]) -> MaskOptions:
    """Return how a mask is trained: the published settings but for ``options``.

    Raises:
        InvalidInputError: an option that there is not, or a value that it cannot have.
    """
    numbers = {
        name
        for name in MaskOptions.__dataclass_fields__
        if name not in ("hidden", "loss", "device")
    }
    for name in options:
        if name not in numbers:
            wanted = "of " + ", ".join(sorted(numbers))
            raise InvalidInputError.of("experiment", "mask options", wanted, repr(name)[:40])
    return MaskOptions(**whole_numbers(options))  # type: ignore[arg-type]
