"""Every file and every name of code that docs/architecture.md mentions is in the source."""

from __future__ import annotations

import ast
import re
from functools import cache

from harness.documents import ROOT

SOURCE = ROOT / "src" / "vecveil"
PAGE = ROOT / "docs" / "architecture.md"


@cache
def source_names() -> set[str]:
    """Return folders, modules, classes, functions, methods and constants."""
    names = {"vecveil", *(path.name for path in ROOT.iterdir() if path.is_dir())}
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "research").rglob("*.py")]:
        names |= {path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def missing(text: str, names: set[str]) -> list[str]:
    """Return the names in backticks that the source does not have; a dotted name by each of its parts."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    words = " ".join(name for name in re.findall(r"`([^`]+)`", prose) if "/" not in name).split()
    quoted = [part for word in words if re.fullmatch(r"[A-Za-z_][\w.]+", word) for part in word.split(".")]
    return sorted({name for name in quoted if name not in names})


def test_every_name_and_every_path_of_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert missing(text, source_names()) == []
    paths = re.findall(r"`(\w+(?:/[\w.]+)+)`", text)
    assert len(paths) > 30
    assert [path for path in paths if not ((ROOT / path).exists() or (SOURCE / path).exists())] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert missing("`LinearMap` `recalibration` and `vecveil.fit_nothing`", source_names()) == [
        "fit_nothing",
        "recalibration",
    ]
