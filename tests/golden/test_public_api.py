"""The public API, the names of ``docs/api.md``, is that of ``public_api.json``: signatures, and the members of classes.

Annotations and names that the page lacks are no part of the contract. ``write_contracts.py --names`` writes the file
anew after a deliberate change.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import vecveil
from harness.contracts import differences, read_contract
from harness.documents import ROOT

PUBLIC = re.findall(r"^::: (vecveil\.[\w.]+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def observe() -> dict[str, str]:
    """Return the contract of each public name."""
    found = {}
    for path in PUBLIC:
        module, _, name = path.rpartition(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of frameworks, while they are imported
            value = getattr(_module(module), name)
        found[path] = describe(value)
    return found


def _module(name: str) -> Any:
    """Return a module by the name that users write: `vecveil.attacks` is an attribute of the package."""
    part = name.partition(".")[2]
    return getattr(vecveil, part) if part in vecveil.__all__ else importlib.import_module(name)


def describe(value: Any) -> str:
    """Return the signature of a function; of a class also its own public members; nothing of a module."""
    if not callable(value):
        return "module"
    members: set[str] = set()
    if isinstance(value, type):
        for base in value.__mro__:
            if base.__module__.startswith("vecveil"):
                members |= {name for name in {**vars(base), **inspect.get_annotations(base)} if name[0] != "_"}
    return " ".join([_signature(value), *sorted(members)])


def _signature(function: Callable[..., Any]) -> str:
    """Return the signature with its defaults and without annotations and addresses."""
    signature = inspect.signature(function)
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(bare)))


def test_the_public_api_is_what_it_was() -> None:
    assert len(PUBLIC) > 60
    lines = differences(read_contract("public_api"), observe())
    assert not lines, "\n".join(lines)


def test_a_name_and_a_default_that_change_are_noticed() -> None:
    """Negative control."""

    class Before:
        def kept(self) -> None: ...
        def gone(self) -> None: ...

    class After:
        def kept(self) -> None: ...

    for one in (Before, After):
        one.__module__ = "vecveil.x"

    def old(a: int, *, b: int = 1) -> None: ...
    def new(a: int, *, b: int = 2) -> None: ...

    assert differences({"C": describe(Before)}, {"C": describe(After)}) == [
        'changed: C: was "() gone kept", is "() kept"'
    ]
    assert differences({"f": describe(old)}, {"f": describe(new)}) == [
        'changed: f: was "(a, *, b=1)", is "(a, *, b=2)"'
    ]
