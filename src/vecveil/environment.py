"""Variables that processes inherit which are started in a block."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

__all__ = ["inherited_variables"]


@contextlib.contextmanager
def inherited_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and set them back after the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
