"""The package has no import circles, and a public class name means one class.

Imports inside functions and under TYPE_CHECKING count: a circle that only they close still ties the modules together.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vecveil"


def modules() -> dict[str, str]:
    """Return the source of each module by its name; packages by the name of their folder."""
    sources = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


def imported(name: str, source: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, by absolute imports anywhere in its code."""
    targets: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            targets += [full if full in known else node.module for full in names]
    for target in targets:
        # A package re-exports its modules: a module that imports its own package closes no circle of modules.
        if target in known and target != name and not name.startswith(f"{target}."):
            yield target


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return the modules of one import circle, or nothing."""
    graph = {name: set(imported(name, source, sources)) for name, source in sources.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def reused(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the public class names that more than one module defines, with these modules."""
    homes = defaultdict(list)
    for name, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: places for name, places in homes.items() if len(places) > 1}


def test_no_import_circle() -> None:
    assert circle(modules()) == []


def test_a_circle_is_noticed() -> None:
    sources = {
        "vecveil.a": "def f():\n    from vecveil.b import g",
        "vecveil.b": "if TYPE_CHECKING:\n    from vecveil.a import f",
        "vecveil.c": "from vecveil.a import f",
    }
    assert set(circle(sources)) == {"vecveil.a", "vecveil.b"}
    assert circle({"vecveil": "from vecveil.a import f", "vecveil.a": "import vecveil"}) == []


def test_a_public_class_name_means_one_class() -> None:
    assert not set(reused(modules()))


def test_a_reused_class_name_is_noticed() -> None:
    assert reused({"vecveil.a": "class Span: ...", "vecveil.b": "class Span: ..."}) == {
        "Span": ["vecveil.a", "vecveil.b"]
    }


def test_the_workflows_call_targets_of_the_makefile() -> None:
    yaml = pytest.importorskip("yaml")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called: set[str] = set()
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
            for step in job["steps"]:
                if (command := step.get("run", "")).startswith("make "):
                    called |= set(command.split()[1:])
    assert {"check", "test", "wheel-check"} <= called <= targets
