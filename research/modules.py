"""A user's own code in a run: modules that register methods, attacks or data sets, imported in every process."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from vecveil.errors import DataFileError, VecveilError, message

__all__ = ["import_modules"]


def import_modules(names: Sequence[str]) -> None:
    """Import modules once: Python files by their path, others by their name.

    Args:
        names: paths that end in ``.py``, relative to the current folder, or names of installed modules.

    Raises:
        DataFileError: one is missing or cannot be imported.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _import_file(Path(name).resolve())
            else:
                importlib.import_module(name)
        except VecveilError:
            raise
        except Exception as error:
            raise DataFileError(
                message("experiment", "modules", "Python files or modules that can be imported", repr(name)[:80],
                        f"Importing it raised {type(error).__name__}.")
            ) from error  # fmt: skip


def _import_file(path: Path) -> None:
    name = f"vecveil_own_{path.stem}"
    held = sys.modules.get(name)
    if held is not None and getattr(held, "__file__", None) == str(path):
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path.name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
