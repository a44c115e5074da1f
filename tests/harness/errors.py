"""Match the errors of the package by their stable code and argument, never by their sentence."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest

from vecveil.errors import VecveilError


def raises(code: str, param: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[Any]]:
    """Return a context that expects one of our errors.

    Args:
        code: the error's code, or a prefix of it that ends at a hyphen: ``E-INPUT`` matches ``E-INPUT-RANGE``.
        param: name of the argument at fault; None matches any.
    """

    def matches(error: VecveilError) -> bool:
        same_kind = error.code == code or error.code.startswith(f"{code}-")
        return same_kind and (param is None or error.param == param)

    return pytest.raises(VecveilError, check=matches)
