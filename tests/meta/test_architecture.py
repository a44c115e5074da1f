"""Who may import whom: the table of docs/architecture.md, enforced on the source as written.

Imports inside functions count as well as those at the top; imports under TYPE_CHECKING do not: they
load nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vecveil"
DOCUMENT = ROOT / "docs" / "architecture.md"
ROOMS = {"texts", "privacy", "auditing", "index", "stores", "gateway", "cli"}

Rules = Mapping[str, frozenset[str] | None]  # by part: the parts that it may import, or None for any


def read_table(text: str) -> Rules:
    """Return the rules of the table; root modules are in every one."""
    rows = re.findall(r"^\| (`[^|]+|root: [^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    table = next(names for part, _ in rows if (names := part).startswith("root: "))
    root = frozenset(re.findall(r"\w+", table.removeprefix("root: ")))
    rules: dict[str, frozenset[str] | None] = dict.fromkeys(root, root)
    for part, may in rows:
        if part.startswith("`") and re.match(r"root|anything|`[a-z_.]+`", may):
            named = None if may.startswith("anything") else root | set(re.findall(r"`([\w.]+)`", may))
            rules |= dict.fromkeys(re.findall(r"`([\w.]+)`", part), named)
    return rules


def inside(module: str, parts: Iterator[str] | frozenset[str]) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def imports(tree: ast.AST, package: list[str]) -> Iterator[tuple[str, int]]:
    """Yield each imported module of the package, without the package's name, and its line."""

    def named(module: str, names: list[str], line: int) -> Iterator[tuple[str, int]]:
        if module == "vecveil" or module.startswith("vecveil."):
            for name in names:
                yield f"{module}.{name}".partition(".")[2], line

    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from named(alias.name, [""], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            yield from named(module, [alias.name for alias in node.names], node.lineno)
        yield from imports(node, package)


def violations(code: str, path: Path, rules: Rules) -> list[str]:
    """Return one sentence per forbidden import: file, import and rule."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    module = ".".join(parts)
    if module in {"__init__", "__main__"}:  # the public names and the commands
        return []
    rows = [part for part in rules if inside(module, frozenset({part}))]
    if not rows:
        return [f"{path.relative_to(ROOT)}: no row of docs/architecture.md is about it"]
    part = max(rows, key=len)
    may = rules[part]
    found = []
    for target, line in imports(ast.parse(code), ["vecveil", *parts[:-1]]):
        if may is None or inside(target, may | {part, "__version__"}):
            continue
        found.append(
            f"{path.relative_to(ROOT)}:{line} imports vecveil.{target}; `{part}` may import {', '.join(sorted(may))}"
        )
    return found


RULES = read_table(DOCUMENT.read_text(encoding="utf-8"))
FILES = sorted(SOURCE.rglob("*.py"))


def test_no_module_imports_what_its_part_may_not() -> None:
    found = [v for file in FILES for v in violations(file.read_text("utf-8"), file, RULES)]
    assert not found, "\n" + "\n".join(found)


def test_the_package_has_seven_rooms() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == ROOMS
    assert {part for part in RULES if "." not in part} >= ROOMS


def test_the_table_says_what_it_is_meant_to_say() -> None:
    def rooms(part: str) -> set[str]:
        return {name.partition(".")[0] for name in RULES[part] or ()} & ROOMS

    assert rooms("errors") == rooms("texts") == set()
    assert rooms("index") == rooms("privacy") == {"texts"}
    assert rooms("auditing") == {"texts", "privacy"}
    assert "gateway" not in rooms("stores")
    assert not any(name.startswith("privacy.mechanisms") for name in RULES["auditing.attacks"] or ())


def test_no_module_of_the_package_imports_the_experiments() -> None:
    """A wheel does not hold them; `vecveil experiment` loads them by name where there is a checkout."""
    pattern = re.compile(r"^\s*(?:from|import) research\b", re.MULTILINE)
    assert pattern.search("    from research.catalogue import EXPERIMENTS")
    assert not [file for file in FILES if pattern.search(file.read_text("utf-8"))]


CONTROLS = [
    ("auditing/attacks/linear.py", "from vecveil.privacy.mechanisms import Laplace", "privacy.mechanisms"),
    ("auditing/attacks/linear.py", "def f():\n    import vecveil.privacy.protector.serialisation", "protector"),
    ("auditing/attacks/linear.py", "from ...privacy.sensitivity import shapes", "privacy.sensitivity"),
    ("auditing/attacks/linear.py", "from vecveil.privacy import sensitivity", "privacy.sensitivity"),
    ("index/log.py", "import vecveil.privacy.concepts as c", "privacy.concepts"),
    ("auditing/report/page.py", "async def f():\n    from vecveil.auditing import audit", "auditing.audit"),
    ("validation.py", "from vecveil.privacy.accounting import Guarantee", "privacy.accounting"),
    ("texts/tables/one.py", "from vecveil.index import Sealer", "index"),
    ("novel/part.py", "import numpy", "novel"),
]


@pytest.mark.parametrize(("file", "code", "target"), CONTROLS)
def test_control_a_forbidden_import_is_found(file: str, code: str, target: str) -> None:
    (found,) = violations(code, SOURCE / file, RULES)
    assert f"src/vecveil/{file}" in found
    assert target in found
    assert "docs/architecture.md" in found or "may import" in found


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("auditing/result.py", "def f():\n    from vecveil.auditing.report import write_audit_html"),
        ("privacy/sensitivity/shapes.py", "if TYPE_CHECKING:\n    from vecveil.privacy.protector import Protector"),
        ("auditing/attacks/linear.py", "from vecveil.privacy.utility.estimates import Estimate\nimport numpy"),
        ("cli/fit.py", "def f():\n    import vecveil.stores"),
        ("privacy/protector/fitting.py", "from .scale import Scale\nfrom vecveil import __version__"),
    ],
)
def test_control_an_allowed_import_is_not_found(file: str, code: str) -> None:
    assert violations(code, SOURCE / file, RULES) == []
