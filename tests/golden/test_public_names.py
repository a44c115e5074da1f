"""The public names and their signatures are those of ``public_names.json``.

Annotations are no part of the contract. ``write_contracts.py --names`` writes the file anew after a deliberate
change.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.contracts import differences, read_contract
from vecveil import integrations

FRAMEWORKS = [
    f"vecveil.integrations.{path.stem}"
    for path in sorted(Path(integrations.__file__).parent.glob("[!_]*.py"))
    if path.stem != "workers"
]
"""Modules for one framework or database each."""
SIGNED = ["vecveil", "vecveil.accounting", "vecveil.attacks", "vecveil.metrics", *FRAMEWORKS]
"""Modules whose signatures are frozen."""
NAMED = [
    "vecveil.errors",
    "vecveil.concepts",
    "vecveil.encoders",
    "vecveil.protector",
    "vecveil.auditing",
    "vecveil.randomness",
    "vecveil.mechanisms",
    "vecveil.sensitivity",
    "vecveil.textcrafter",
    "vecveil.report",
    "vecveil.bulk",
    "vecveil.stores",
    "vecveil.data",
    "vecveil.serving",
]
"""Modules of which the names alone are frozen: those above and what the documentation imports from."""
SPECIAL = {
    "__init__",
    "__new__",
    "__call__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
}
"""Methods with underscores that a caller uses by their syntax."""


def observe(module: str) -> dict[str, Any]:
    """Return the public names of ``module``, each with its signature where the module is one of `SIGNED`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of frameworks, while they are imported
        loaded = importlib.import_module(module)
        return {name: _contract(getattr(loaded, name), module) for name in loaded.__all__}


def _contract(value: Any, module: str) -> Any:
    kind = _kind(value)
    if module not in SIGNED or kind in ("module", "value"):
        return kind
    if kind == "function":
        return _signature(value)
    return {"class": _members(value)}


def _kind(value: Any) -> str:
    if isinstance(value, ModuleType):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if inspect.isroutine(value) else "value"


def _members(owner: type) -> dict[str, str]:
    """Return the members of a class that its own code or a base in this package defines."""
    members: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if not base.__module__.startswith("vecveil"):
            continue
        fields = inspect.get_annotations(base)
        for name, member in {**dict.fromkeys(fields), **base.__dict__}.items():
            if name in SPECIAL or not name.startswith("_"):
                described = _member(member)
                if described:
                    members[name] = described
    return members


def _member(member: Any) -> str:
    """Return the contract of one member; nothing for what another package put into the class."""
    if isinstance(member, classmethod | staticmethod):
        return f"{type(member).__name__} {_signature(member.__func__)}"
    if inspect.isfunction(member):
        own = member.__module__.startswith("vecveil") or member.__name__ in SPECIAL
        return _signature(member) if own else ""
    foreign = inspect.isroutine(member) or type(member).__name__ == "RequestMethod"  # scikit-learn's
    return "" if foreign else "attribute"


def _signature(function: Callable[..., Any]) -> str:
    """Return the signature with its defaults and without annotations."""
    parameters = [
        inspect.Parameter(one.name, one.kind, default=_Default.of(one.default))
        for one in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))


class _Default(str):
    """A default that is written like itself, without addresses and names of modules."""

    __repr__ = str.__str__

    @classmethod
    def of(cls, value: Any) -> Any:
        if value is inspect.Parameter.empty:
            return value
        if isinstance(value, type) or inspect.isroutine(value):
            return cls(value.__name__)
        return cls(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", [*SIGNED, *NAMED])
def test_public_names_are_what_they_were(module: str) -> None:
    expected = read_contract("public_names")
    lines = differences(expected[module], observe(module), at=module)
    assert not lines, "\n".join(lines)


def test_every_module_of_the_contract_is_compared() -> None:
    assert set(read_contract("public_names")) == {*SIGNED, *NAMED}


def test_a_name_and_a_default_that_change_are_noticed() -> None:
    """Negative control: each change gives one line that says which."""

    def old(a: int, *, b: int = 1) -> None: ...
    def new(a: int, *, b: int = 2) -> None: ...

    before = {"f": _signature(old), "g": "class"}
    lines = differences(before, {"f": _signature(new), "h": "class"}, at="m")
    assert [line.split(" (")[0] for line in lines] == [
        'changed: m / f: was "(a, *, b=1)", is "(a, *, b=2)"',
        "vanished: m / g",
        "appeared: m / h",
    ]
