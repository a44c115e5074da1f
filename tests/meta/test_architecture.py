"""Who may import whom: the table of docs/architecture.md, enforced on the source as written.

Imports inside functions count as well as those at the top; imports under TYPE_CHECKING do not: they
load nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vecveil"
DOCUMENT = ROOT / "docs" / "architecture.md"

FOUNDATION = {"version"}  # layer 0, too small for the table
FREE = {"__init__", "__main__", "cli"}  # the public names, and the commands
LAZY = {("auditing", "report"), ("protector", "attacks")}  # allowed inside functions only
TOUCHY = {("attacks", part) for part in ("mechanisms", "protector", "sensitivity")}


def read_table(text: str) -> dict[str, set[str]]:
    """Return for each part the parts that it may import, from the table of the document."""
    layers: dict[str, list[str]] = {}
    allowed: dict[str, str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3 or not re.fullmatch(r"\d'?", cells[0]):
            continue
        names = re.sub(r"\(.*?\)", "", cells[1])  # what a part is made of
        parts = [name for quoted in re.findall(r"`([^`]+)`", names) for name in quoted.split()]
        layers.setdefault(cells[0], []).extend(parts)
        allowed |= {part: cells[2] for part in parts}
    assert len(layers) >= 8, "docs/architecture.md has no table of layers any more"
    rules = {part: expand(cell, part, layers) for part, cell in allowed.items()}
    foundation = set(layers["0"]) | FOUNDATION
    for part in rules:
        rules[part] |= foundation | {part}
    return rules | {part: foundation for part in FOUNDATION}


def expand(cell: str, part: str, layers: dict[str, list[str]]) -> set[str]:
    """Return the parts that one cell of the third column stands for."""
    may, _, never = cell.partition("never")
    found = set(re.findall(r"`(\w+)`", may))
    numbers = re.sub(r"`\w+`", "", may)
    order = sorted(layers, key=lambda layer: (int(layer[0]), layer))
    if "anything" in may:
        return {name for names in layers.values() for name in names}
    if "each other" in may:
        found |= set(layers["0"])
    for low, high in re.findall(r"(\d'?)[–-](\d'?)", numbers):
        inside = order[order.index(low) : order.index(high) + 1]
        if "'" not in high:  # 0–3 does not reach 3'
            inside = [layer for layer in inside if "'" not in layer]
        found |= {name for layer in inside for name in layers[layer]}
    for layer in re.findall(r"layer (\d'?)|(?<![\d–'])(\d'?)(?![\d–'])", numbers):
        found |= set(layers[layer[0] or layer[1]])
    return found - set(re.findall(r"`(\w+)`", never))


def part_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(tree: ast.AST, package: list[str]) -> Iterator[tuple[str, int, bool]]:
    """Yield each imported part of the package, its line, and whether a function imports it."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, int, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from visit(other, inside)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from named(alias.name, node.lineno, inside)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            if module == "vecveil":
                for alias in node.names:
                    yield from named(f"vecveil.{alias.name}", node.lineno, inside)
            else:
                yield from named(module, node.lineno, inside)
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, deeper)

    def named(module: str, line: int, inside: bool) -> Iterator[tuple[str, int, bool]]:
        parts = module.split(".")
        if parts[0] == "vecveil" and len(parts) > 1 and not parts[1].startswith("__"):
            yield parts[1], line, inside

    yield from visit(tree, False)


def violations(code: str, path: Path, rules: dict[str, set[str]]) -> list[str]:
    """Return one sentence per forbidden import: file, import and rule."""
    part = part_of(path)
    if part in FREE:
        return []
    if part not in rules:
        return [f"{path.relative_to(ROOT)}: `{part}` has no row in docs/architecture.md"]
    package = ["vecveil", *path.relative_to(SOURCE).parts[:-1]]
    found = []
    for target, line, inside in imports(ast.parse(code), package):
        if target in rules[part] or (inside and (part, target) in LAZY):
            continue
        rule = f"`{part}` may import {', '.join(sorted(rules[part] - {part}))}"
        found.append(f"{path.relative_to(ROOT)}:{line} imports vecveil.{target}; {rule}")
    return found


RULES = read_table(DOCUMENT.read_text(encoding="utf-8"))
FILES = sorted(SOURCE.rglob("*.py"))


def test_no_module_imports_what_its_layer_may_not() -> None:
    found = [v for file in FILES for v in violations(file.read_text("utf-8"), file, RULES)]
    assert not found, "\n" + "\n".join(found)


def test_the_table_says_what_it_is_meant_to_say() -> None:
    assert RULES["errors"] >= {"types", "validation", "runtime"}
    assert "concepts" in RULES["sensitivity"]
    assert "encoders" not in RULES["sensitivity"]
    assert {"sensitivity", "accounting"} <= RULES["mechanisms"]
    assert "attacks" not in RULES["mechanisms"]
    assert not {target for _, target in TOUCHY} & RULES["attacks"]
    assert {"concepts", "encoders", "metrics"} <= RULES["attacks"]
    assert {"mechanisms", "metrics", "encoders"} <= RULES["protector"]
    assert not {"attacks", "auditing", "report", "cli"} & RULES["protector"]
    assert {"attacks", "protector"} <= RULES["auditing"]
    assert not {"report", "cli", "demo"} & RULES["auditing"]
    assert not {"auditing", "protector", "attacks"} & RULES["report"]
    for part in ("accounting", "concepts", "encoders", "metrics", "data"):
        others = {"accounting", "concepts", "encoders", "metrics", "data"} - {part}
        assert not others & RULES[part]


def test_no_module_of_the_package_imports_the_experiments() -> None:
    """A wheel does not hold them; `vecveil experiment` loads them by name where there is a checkout."""
    pattern = re.compile(r"^\s*(?:from|import) research\b", re.MULTILINE)
    assert pattern.search("    from research.catalogue import EXPERIMENTS")
    assert not [file for file in FILES if pattern.search(file.read_text("utf-8"))]


CONTROLS = [
    ("attacks/linear.py", "from vecveil.mechanisms import Laplace", "mechanisms"),
    ("attacks/linear.py", "def f():\n    import vecveil.protector.serialisation", "protector"),
    ("attacks/linear.py", "from ..sensitivity import shapes", "sensitivity"),
    ("attacks/linear.py", "from vecveil import sensitivity", "sensitivity"),
    ("metrics/utility.py", "import vecveil.encoders as e", "encoders"),
    ("auditing/result.py", "from vecveil.report import write_audit_html", "report"),
    ("report/page.py", "async def f():\n    from vecveil.auditing import audit", "auditing"),
    ("validation.py", "from vecveil.accounting import Guarantee", "accounting"),
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
        ("auditing/result.py", "def f():\n    from vecveil.report import write_audit_html"),
        ("sensitivity/shapes.py", "if TYPE_CHECKING:\n    from vecveil.protector import Protector"),
        ("attacks/linear.py", "from vecveil.metrics.estimates import Estimate\nimport numpy"),
        ("cli/fit.py", "def f():\n    import vecveil.protector"),
        ("protector/fitting.py", "from .scale import Scale\nfrom vecveil import __version__"),
    ],
)
def test_control_an_allowed_import_is_not_found(file: str, code: str) -> None:
    assert violations(code, SOURCE / file, RULES) == []
