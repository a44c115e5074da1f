"""``--max-memory`` limits every file that a command reads, not the main input alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.command_line import run
from vecveil.texts.tables.binary_formats import memory_limit


@pytest.fixture
def arguments(tmp_path: Path) -> list[object]:
    (tmp_path / "notes.csv").write_text("text\n" + "".join(f"note {i}\n" for i in range(30)))
    (tmp_path / "concept.yaml").write_text("name: drug\nterms: [ibuprofen]\n")
    (tmp_path / "corpus.txt").write_text("a line of ordinary text\n" * 20_000)
    np.save(tmp_path / "vectors.npy", np.ones((30, 4), np.float32))
    return [
        "audit",
        tmp_path / "notes.csv",
        "--concept",
        tmp_path / "concept.yaml",
        "--vectors",
        tmp_path / "vectors.npy",
        "--attacker-texts",
        tmp_path / "corpus.txt",
    ]


def test_a_side_file_is_limited(arguments: list[object]) -> None:
    limited = run(*arguments, "--max-memory", "100K")
    assert limited.code == 1
    assert "corpus.txt: `--max-memory`" in limited.err
    assert memory_limit.get() is None  # the next command of this process starts without a limit


def test_control_a_higher_limit_reads_it(arguments: list[object]) -> None:
    enough = run(*arguments, "--max-memory", "100M")
    assert enough.code == 1  # no text holds the concept
    assert "max_memory" not in enough.err
