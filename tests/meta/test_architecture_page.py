"""Every module, class and function that docs/architecture.md names is in the source."""

from __future__ import annotations

import ast
import re
from functools import cache

from harness.documents import ROOT

SOURCE = ROOT / "src" / "vecveil"
PAGE = ROOT / "docs" / "architecture.md"
ELSEWHERE = {"np", "audit.json"}  # no names of the source


@cache
def source_names() -> set[str]:
    """Return parts, modules, classes, functions and fields, plain and as Class.member."""
    names = {"vecveil", *(path.name for path in ROOT.iterdir() if path.is_dir())}
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "research").rglob("*.py")]:
        names |= {path.stem, path.parent.name}
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            if not isinstance(node, ast.ClassDef):
                continue
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    names |= {member.name, f"{node.name}.{member.name}"}
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    names |= {member.target.id, f"{node.name}.{member.target.id}"}
    return names


def page_names(text: str) -> set[str]:
    """Return the names in backticks, and those that code blocks define or reach by a dot."""
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"``.*?``", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    quoted = " ".join(name for name in re.findall(r"`([^`]+)`", prose) if "/" not in name)
    found = set(re.findall(r"[A-Za-z_][\w.]*\w(?=$|[\s(])", quoted))
    for block in blocks:
        found |= set(re.findall(r"\b(?:class|def) (\w+)", block))
        found |= set(re.findall(r"(?<![\w.])[A-Za-z_]\w*\.[a-z_]\w+", block))
    return found


def missing(text: str, names: set[str]) -> list[str]:
    """Return the names of the page that the source does not have."""

    def there(name: str) -> bool:
        head, _, rest = name.partition(".")
        if {head, name} & ELSEWHERE or name in names:
            return True
        # module.name: both must be there; Class.member was looked up whole.
        return bool(rest) and head.islower() and head in names and there(rest)

    return sorted(name for name in page_names(text) if not there(name))


def test_every_name_of_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {"Moments.of", "fitting", "Mechanism", "vecveil.fit_pairs"} <= page_names(text)
    assert missing(text, source_names()) == []


def test_every_path_of_the_page_exists() -> None:
    paths = re.findall(r"`(\w+(?:/[\w.]+)+)`", PAGE.read_text(encoding="utf-8"))
    assert paths
    assert len(paths) > 30
    assert [path for path in paths if not ((ROOT / path).exists() or (SOURCE / path).exists())] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    page = "`LinearMap` `recalibration` and `vecveil.fit_nothing`\n\n```text\nclass Gone:\nx = LinearMap.reduced\n```\n"
    assert missing(page, source_names()) == ["Gone", "LinearMap.reduced", "recalibration", "vecveil.fit_nothing"]
