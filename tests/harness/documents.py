"""Reads the code blocks of Markdown documents and runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import vecveil

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of code: its language, its text and the line that it begins on."""

    language: str
    code: str
    line: int


def blocks(markdown: str, *languages: str) -> Iterator[Block]:
    """Yield the fenced blocks in one of ``languages``, all if none is named."""
    for match in _FENCE.finditer(markdown):
        if not languages or match[1] in languages:
            yield Block(match[1], match[2], markdown[: match.start(2)].count("\n") + 1)


def section(markdown: str, title: str) -> str:
    """Return the text between the heading ``title`` and the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", markdown, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[2]


def run_python(markdown: str, name: str) -> int:
    """Run the Python blocks of a document in one namespace and return how many there were."""
    namespace: dict[str, object] = {"__name__": f"document:{name}"}
    count = 0
    for block in blocks(markdown, "python"):
        source = "\n" * (block.line - 1) + block.code  # a traceback names the document's line
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
        count += 1
    return count


def environment() -> dict[str, str]:
    """Return the environment of a child process that runs this very package, with this cache."""
    source = str(Path(vecveil.__file__).parents[1])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
