"""No assertion of the tests passes whatever happens.

Such an assertion holds a constant that decides it: ``assert x or True``, ``assert (x, "said")``, ``assert 1``, or a
text beside ``or``. ``assert False`` and the text of the failure stay: they fail, or decide nothing.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def idle_assertions(source: str) -> list[tuple[int, str]]:
    """Return line and reason of each assertion of ``source`` whose outcome does not depend on what it tests."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            reason = _reason(node.test, whole=True)
            if reason:
                found.append((node.lineno, reason))
    return found


def _reason(test: ast.expr, *, whole: bool = False) -> str:
    """Return what makes ``test`` a constant, wholly or in a part joined by ``and``, ``or`` and ``not``."""
    if isinstance(test, ast.BoolOp):
        word = "or" if isinstance(test.op, ast.Or) else "and"
        if any(_is_constant(part) for part in test.values):
            return f"a constant beside `{word}`"
        return next(filter(None, map(_reason, test.values)), "")
    if isinstance(test, ast.NamedExpr):
        return _reason(test.value, whole=whole)
    if isinstance(test, ast.UnaryOp) and not _is_constant(test):
        return _reason(test.operand)
    if whole and _is_constant(test) and not _is_false(test):
        return "a constant"
    if isinstance(test, ast.Compare) and all(isinstance(part, ast.Constant) for part in (test.left, *test.comparators)):
        return "a comparison of constants"
    return ""


def _is_constant(part: ast.expr) -> bool:
    """Return whether ``part`` has one truth value, whatever the names in it stand for."""
    if isinstance(part, ast.Tuple | ast.List | ast.Set):
        return not any(isinstance(one, ast.Starred) for one in part.elts)
    if isinstance(part, ast.Dict):
        return None not in part.keys
    if isinstance(part, ast.UnaryOp):
        return _is_constant(part.operand)
    return isinstance(part, ast.Constant | ast.Lambda)


def _is_false(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and part.value is False


def test_no_assertion_is_decided_by_a_constant() -> None:
    found = [
        f"{path}:{line}: {reason}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, reason in idle_assertions(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "assert f(x) == [1] or True",
        "assert x or 'text'",
        "assert x and False",
        "assert not (x or True)",
        "assert (x == 1) and (y or 1)",
        "assert True",
        "assert 'text'",
        "assert 1 == 1",
        "assert (x, 'said')",
        "assert x or [1]",
        "assert not False",
        "assert x or not None",
        "assert (y := 3)",
        "assert lambda: x",
    ],
)
def test_an_assertion_that_is_decided_by_a_constant_is_found(source: str) -> None:
    """Negative control, at the top and inside of a function."""
    inside = f"def test() -> None:\n    if y:\n        {source}\n"
    assert [line for line, _ in idle_assertions(source)] == [1]
    assert [line for line, _ in idle_assertions(inside)] == [3]


@pytest.mark.parametrize(
    "source",
    [
        "assert x",
        "assert x == 1, 'said'",
        "assert False, 'not reached'",
        "assert x or y",
        "assert not x",
        "assert x in (1, 2)",
        "assert f(True)",
        "assert 1 < x < 2",
        "assert [*x]",
        "assert x is True",
        "assert x == (y or 'none')",
    ],
)
def test_an_assertion_that_can_fail_is_left_alone(source: str) -> None:
    assert idle_assertions(source) == []
