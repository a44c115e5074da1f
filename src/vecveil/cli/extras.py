"""The package's extras as its own metadata lists them, and which of their packages are installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

__all__ = ["CORE", "Requirement", "examine", "parse", "requirements", "version_of"]

CORE = ""
"""Stands for what the package needs without any extra."""
NAME = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?\s*\(?(?P<rest>[^;]*)")


@dataclass(frozen=True)
class Requirement:
    """One line of the metadata.

    Attributes:
        extra: the extra that brings it, or `CORE`.
        name: of the package.
        least: the lowest version that will do, or None.
        extras: extras of the package; of this package itself, where `name` is its own.
        here: whether this platform needs it.
    """

    extra: str
    name: str
    least: str | None
    extras: tuple[str, ...]
    here: bool


def parse(line: str) -> Requirement:
    """Return one requirement such as ``uvloop>=0.19; sys_platform != "win32" and extra == "serve"``."""
    text, _, marker = line.partition(";")
    found = NAME.match(text)
    if found is None:
        raise ValueError("a requirement must begin with the name of a package")
    least = re.search(r"(?:>=|==|~=)\s*([\w.+!]+)", found["rest"])
    extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", marker)
    platform = re.search(r"""sys_platform\s*(==|!=)\s*["']([^"']+)["']""", marker)
    return Requirement(
        extra=extra[1] if extra else CORE,
        name=found["name"],
        least=least[1] if least else None,
        extras=tuple(part.strip() for part in (found["extras"] or "").split(",") if part.strip()),
        here=platform is None or (sys.platform == platform[2]) == (platform[1] == "=="),
    )


def requirements() -> list[str]:
    """Return the lines of this package's metadata; none where it lies on the path without any."""
    try:
        return metadata.requires("vecveil") or []
    except metadata.PackageNotFoundError:
        return []


def version_of(package: str) -> str | None:
    """Return the installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def examine(
    lines: Iterable[str], version: Callable[[str], str | None] = version_of
) -> list[dict[str, Any]]:
    """Return for each extra, the core first, what it needs, what is there and how to get the rest.

    Each has ``extra`` (None for the core), ``state`` (``"installed"``, ``"missing"`` where no package is there,
    else ``"incomplete"``), its own ``packages``, the other extras that it is made ``of``, and the ``install``
    command, None where nothing is missing.
    """
    known: dict[str, list[Requirement]] = {CORE: []}
    for one in map(parse, lines):
        known.setdefault(one.extra, []).append(one)
    return [_examine(extra, known, version) for extra in known]


def _examine(
    extra: str, known: dict[str, list[Requirement]], version: Callable[[str], str | None]
) -> dict[str, Any]:
    own = [one for one in known[extra] if one.here and not _of_itself(one)]
    packages = [{**asdict(one), "version": version(one.name)} for one in own]
    for package in packages:
        package["state"] = _state(package["version"], package["least"])
    states = {
        _state(version(one.name), one.least)
        for one in _all_of(extra, known, set())
        if not _of_itself(one)
    }
    if states <= {"installed"}:
        state = "installed"
    elif "installed" in states or "too old" in states:
        state = "incomplete"
    else:
        state = "missing"
    return {
        "extra": extra or None,
        "state": state,
        "packages": [
            {key: package[key] for key in ("name", "version", "least", "state")}
            for package in packages
        ],
        "of": [name for one in known[extra] if _of_itself(one) for name in one.extras],
        "install": None if state == "installed" else _command(extra),
    }


def _of_itself(one: Requirement) -> bool:
    return one.name == "vecveil"


def _all_of(extra: str, known: dict[str, list[Requirement]], seen: set[str]) -> list[Requirement]:
    """Return what an extra and those that it is made of need on this platform."""
    if extra in seen:
        return []
    seen.add(extra)
    found = [one for one in known.get(extra, []) if one.here]
    inner = [name for one in found if _of_itself(one) for name in one.extras]
    return found + [one for name in inner for one in _all_of(name, known, seen)]


def _state(version: str | None, least: str | None) -> str:
    if version is None:
        return "missing"
    return "installed" if least is None or _numbers(version) >= _numbers(least) else "too old"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without the zeros at its end: 2.13.0+cpu is (2, 13)."""
    numbers = [int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _command(extra: str) -> str:
    return f"pip install --upgrade 'vecveil{f'[{extra}]' if extra else ''}'"
